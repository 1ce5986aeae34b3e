// Rows of TQ2_0 times one row of Q8_K: for each block `acc += sum * (dw * dx)`, in the order of blocks.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

void main() {
    uint row = gl_GlobalInvocationID.x;
    if (row >= rows) return;
    uint blocks = columns / 256;
    precise float acc = 0.0;
    for (uint i = 0; i < blocks; i++) {
        uint w = (row * blocks + i) * 66, x = i * 292;
        int sum = 0;
        for (uint e = 0; e < 256; e++) {
            uint m = e & 31u, n = (e >> 5) & 3u, half_block = e >> 7;
            int code = ((a_byte(w + 32 * half_block + m) >> (2 * n)) & 3) - 1;
            sum += code * b_byte(x + 4 + e);
        }
        precise float scale = of_half(a_half(w + 64)) * uintBitsToFloat(b[x >> 2]);
        precise float part = float(sum) * scale;
        acc = acc + part;
    }
    y[row] = floatBitsToUint(acc);
}
