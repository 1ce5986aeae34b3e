// Rows of Q8_0 times one row of Q8_0: for each block `acc += sum * (dw * dx)`, in the order of blocks.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

void main() {
    uint row = gl_GlobalInvocationID.x;
    if (row >= rows) return;
    uint blocks = columns / 32;
    precise float acc = 0.0;
    for (uint i = 0; i < blocks; i++) {
        uint w = (row * blocks + i) * 34, x = i * 34;
        int sum = 0;
        for (uint j = 2; j < 34; j++) sum += a_byte(w + j) * b_byte(x + j);
        precise float scale = of_half(a_half(w)) * of_half(b_half(x));
        precise float part = float(sum) * scale;
        acc = acc + part;
    }
    y[row] = floatBitsToUint(acc);
}
