// Floats to Q8_0, one block for each invocation; a block becomes nine words: the half float, and four codes to a word.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

void main() {
    uint block = gl_GlobalInvocationID.x;
    if (block >= rows) return;
    float most = 0.0;
    for (uint j = 0; j < 32; j++) most = max(most, abs(uintBitsToFloat(a[block * 32 + j])));
#ifdef PLAIN
    precise float d = most / 127.0;
    precise float inverse = d == 0.0 ? 0.0 : 1.0 / d;
#else
    float d = divided(most, 127.0);
    float inverse = d == 0.0 ? 0.0 : divided(1.0, d);
#endif
    y[block * 9] = to_half(d);
    for (uint w = 0; w < 8; w++) {
        uint word = 0u;
        for (uint j = 0; j < 4; j++) {
            precise float v = uintBitsToFloat(a[block * 32 + 4 * w + j]) * inverse;
            // to the nearest, ties away from zero
            precise float away = abs(v) + uintBitsToFloat(0x3effffffu);
            int q = v < 0.0 ? -int(away) : int(away);
            word |= uint(q & 255) << (8 * j);
        }
        y[block * 9 + 1 + w] = word;
    }
}
