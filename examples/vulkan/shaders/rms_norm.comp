// The RMS norm of a row for each invocation: squares rounded to f32, their sum in f64 in the order of elements.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

void main() {
    uint row = gl_GlobalInvocationID.x;
    if (row >= rows) return;
    precise double sum = 0.0lf;
    for (uint i = 0; i < columns; i++) {
        float x = uintBitsToFloat(a[row * columns + i]);
        precise float square = x * x;
        sum = sum + double(square);
    }
#ifdef PLAIN
    precise float mean = float(sum / double(columns));
    precise float more = mean + number;
    precise float factor = 1.0 / sqrt(more);
#else
    float mean = float(divided(sum, double(columns)));
    precise float more = mean + number;
    float factor = divided(1.0, rooted(more));
#endif
    for (uint i = 0; i < columns; i++) {
        precise float normed = uintBitsToFloat(a[row * columns + i]) * factor;
        precise float gained = normed * uintBitsToFloat(b[i]);
        y[row * columns + i] = floatBitsToUint(gained);
    }
}
