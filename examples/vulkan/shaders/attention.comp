// One query over the cells of a cache of half floats, one head for each invocation: `b` is the query, `a` are the keys
// and behind them the values, both `[heads][cells][columns]`; `y` has the outputs and behind them room for the scores.
#version 450
#extension GL_GOOGLE_include_directive : require
#include "common.glsl"

// e^x by ggml's polynomial: every product and sum is rounded.
float exponential(float x) {
    float round_by = uintBitsToFloat(0x4b400000u);
    precise float zp = x * uintBitsToFloat(0x3fb8aa3bu);
    precise float z = zp + round_by;
    precise float n = z - round_by;
    precise float n1 = n * uintBitsToFloat(0x3f317200u);
    precise float n2 = n * uintBitsToFloat(0x35bfbe8eu);
    precise float r1 = x - n1;
    precise float r = r1 - n2;
    precise float u = r * r;
    precise float hp = uintBitsToFloat(0x3c072010u) * r;
    precise float h = hp + uintBitsToFloat(0x3d2b9f17u);
    precise float lp = uintBitsToFloat(0x3e2aaf33u) * r;
    precise float l = lp + uintBitsToFloat(0x3efffedbu);
    precise float hu = h * u;
    precise float hl = hu + l;
    precise float hlu = hl * u;
    precise float rp = uintBitsToFloat(0x3f7ffff6u) * r;
    precise float j = hlu + rp;
    uint e = floatBitsToUint(z) << 23;
    uint g = n <= 0.0 ? 0x82000000u : 0u;
    float s1 = uintBitsToFloat(g + 0x7f000000u), s2 = uintBitsToFloat(e - g), k = uintBitsToFloat(e + 0x3f800000u);
    precise float fp = s2 * j;
    precise float fs = fp + s2;
    precise float far = fs * s1;
    precise float kp = k * j;
    precise float near = kp + k;
    precise float end = s1 * s1;
    return abs(n) > 192.0 ? end : abs(n) > 126.0 ? far : near;
}

void main() {
    uint head = gl_GlobalInvocationID.x;
    if (head >= rows) return;
    uint cells = extra, keys = head * cells * columns * 2, values = keys + rows * cells * columns * 2;
    uint scores = rows * columns + head * cells;
    float most = uintBitsToFloat(0xff800000u);
    for (uint c = 0; c < cells; c++) {
        precise double sum = 0.0lf;
        for (uint d = 0; d < columns; d++) {
            float q = of_half(to_half(uintBitsToFloat(b[head * columns + d])));
            precise float part = q * of_half(a_half(keys + (c * columns + d) * 2));
            sum = sum + double(part);
        }
        precise float score = float(sum) * number;
        y[scores + c] = floatBitsToUint(score);
        most = max(most, score);
    }
    precise double total = 0.0lf;
    for (uint c = 0; c < cells; c += 4) {
        float e[4] = float[4](0.0, 0.0, 0.0, 0.0);
        for (uint i = 0; i < 4 && c + i < cells; i++) {
            precise float below = uintBitsToFloat(y[scores + c + i]) - most;
            e[i] = exponential(below);
            y[scores + c + i] = floatBitsToUint(e[i]);
        }
        precise float one = e[0] + e[1];
        precise float two = e[2] + e[3];
        precise float four = one + two;
        total = total + double(four);
    }
    float inverse = float(divided(1.0lf, total));
    for (uint c = 0; c < cells; c++) {
        precise float p = uintBitsToFloat(y[scores + c]) * inverse;
        y[scores + c] = floatBitsToUint(of_half(to_half(p)));
    }
    for (uint d = 0; d < columns; d++) {
        precise double sum = 0.0lf;
        for (uint c = 0; c < cells; c++) {
            precise float part = uintBitsToFloat(y[scores + c]) * of_half(a_half(values + (c * columns + d) * 2));
            sum = sum + double(part);
        }
        y[head * columns + d] = floatBitsToUint(float(sum));
    }
}
