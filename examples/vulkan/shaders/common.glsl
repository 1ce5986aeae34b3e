// What every shader shares: the modes of arithmetic, bytes of buffers, half floats, and exact division and root.
#extension GL_EXT_spirv_intrinsics : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#ifndef NO_MODES
// Subnormal numbers stay, results are rounded to the nearest, and zeros, infinities and NaNs are what they are.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4464], 4459, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 32);
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4467], 4462, 32);
#endif

layout(local_size_x = 64) in;
layout(push_constant) uniform Sizes { uint rows; uint columns; uint extra; float number; };
layout(binding = 0) readonly buffer A { uint a[]; };
layout(binding = 1) readonly buffer B { uint b[]; };
layout(binding = 2) buffer Y { uint y[]; };

int signed_byte(uint word, uint at) { return bitfieldExtract(int(word), int(8 * (at & 3)), 8); }
int a_byte(uint at) { return signed_byte(a[at >> 2], at); }
int b_byte(uint at) { return signed_byte(b[at >> 2], at); }
uint a_half(uint at) { return uint(a_byte(at) & 255) | uint(a_byte(at + 1) & 255) << 8; }
uint b_half(uint at) { return uint(b_byte(at) & 255) | uint(b_byte(at + 1) & 255) << 8; }

// The float of a half float's bits; unpackHalf2x16 may flush subnormal ones.
float of_half(uint h) {
    uint sign = (h & 0x8000u) << 16, size = h & 0x7fffu;
    if (size < 0x400u) return uintBitsToFloat(sign | floatBitsToUint(float(size) * uintBitsToFloat(0x33800000u)));
    return uintBitsToFloat(sign | (size >= 0x7c00u ? 0x7f800000u | (size & 0x3ffu) << 13 : (size << 13) + 0x38000000u));
}

// The half float nearest to a float, ties to even.
uint to_half(float x) {
    uint bits = floatBitsToUint(x), sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u;
    if (size >= 0x477ff000u) return sign | 0x7c00u;
    if (size < 0x33000001u) return sign;
    uint exponent = size >> 23, mantissa = (size & 0x7fffffu) | 0x800000u;
    uint shift = exponent < 113 ? 126 - exponent : 13;
    uint whole = mantissa >> shift, rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1);
    whole += uint(rest > middle || (rest == middle && (whole & 1u) == 1u));
    return sign | (exponent < 113 ? whole : whole + ((exponent - 113) << 10));
}

// The quotient of two normal numbers, rounded to the nearest, where it is normal too: bit by bit, because the division of
// Vulkan may be 2.5 units off.
float divided(float p, float q) {
    uint pb = floatBitsToUint(p), qb = floatBitsToUint(q);
    uint sign = (pb ^ qb) & 0x80000000u;
    if ((pb & 0x7fffffffu) == 0u) return uintBitsToFloat(sign);
    uint rest = (pb & 0x7fffffu) | 0x800000u, by = (qb & 0x7fffffu) | 0x800000u;
    int exponent = int((pb >> 23) & 255u) - int((qb >> 23) & 255u) + 127;
    if (rest < by) { rest <<= 1; exponent -= 1; }
    uint quotient = 0u;
    for (int i = 0; i < 25; i++) {
        uint fits = uint(rest >= by);
        quotient = quotient << 1 | fits;
        rest = (rest - by * fits) << 1;
    }
    // the last bit is behind the mantissa
    uint odd = (quotient >> 1) & 1u, up = (quotient & 1u) & uint(rest != 0u || odd == 1u);
    return uintBitsToFloat(sign | ((uint(exponent) << 23) + ((quotient >> 1) - 0x800000u) + up));
}

// The same of doubles.
double divided(double p, double q) {
    uint64_t pb = doubleBitsToUint64(p), qb = doubleBitsToUint64(q);
    uint64_t sign = (pb ^ qb) & 0x8000000000000000ul, mask = 0xffffffffffffful, one = 0x10000000000000ul;
    if ((pb & 0x7ffffffffffffffful) == 0ul) return uint64BitsToDouble(sign);
    uint64_t rest = (pb & mask) | one, by = (qb & mask) | one;
    int exponent = int((pb >> 52) & 2047ul) - int((qb >> 52) & 2047ul) + 1023;
    if (rest < by) { rest <<= 1; exponent -= 1; }
    uint64_t quotient = 0ul;
    for (int i = 0; i < 54; i++) {
        uint64_t fits = rest >= by ? 1ul : 0ul;
        quotient = quotient << 1 | fits;
        rest = (rest - by * fits) << 1;
    }
    uint64_t odd = (quotient >> 1) & 1ul;
    uint64_t up = (quotient & 1ul) & ((rest != 0ul || odd == 1ul) ? 1ul : 0ul);
    return uint64BitsToDouble(sign | ((uint64_t(exponent) << 52) + ((quotient >> 1) - one) + up));
}

// The root of a normal number, rounded to the nearest.
float rooted(float x) {
    uint bits = floatBitsToUint(x);
    int exponent = int(bits >> 23) - 127;
    uint64_t value = uint64_t((bits & 0x7fffffu) | 0x800000u) << 25;
    if ((exponent & 1) != 0) { value <<= 1; exponent -= 1; }
    uint64_t root = 0ul;
    for (int i = 24; i >= 0; i--) {
        uint64_t next = root | (1ul << i);
        if (next * next <= value) root = next;
    }
    // 25 bits, the last one behind the mantissa; no root of such a number lies in the middle
    uint up = uint(root & 1ul);
    return uintBitsToFloat((uint(exponent / 2 + 127) << 23) + (uint(root >> 1) - 0x800000u) + up);
}
