// Arithmetic on polynomials over GF(2) modulo the CRC-32C polynomial, at compile time.
//
// Owns the constants that combining and folding need. Must not know any processor's instructions.
//
// A polynomial of degree < 32 is held reflected: bit 31 is the coefficient of x^0, bit 0 that of x^31.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace mooncake::wire::crc32c_polynomial {

/// Castagnoli's polynomial 0x11EDC6F41, reflected, without its x^32 (RFC 3720, section 12.1).
inline constexpr uint32_t kPolynomial = 0x82F63B78u;
inline constexpr uint32_t kOne = 0x80000000u;

/// Without a branch, as multiply(): the bits are random, and a wrong guess costs more than the work.
constexpr uint32_t times_x(uint32_t a) noexcept { return (a >> 1) ^ (kPolynomial & (0u - (a & 1u))); }

constexpr uint32_t multiply(uint32_t a, uint32_t b) noexcept {
    uint32_t product = 0;
    for (; a != 0; a <<= 1) {
        product ^= b & (0u - (a >> 31));
        b = times_x(b);
    }
    return product;
}

/// x^(8 * 2^k): what 2^k zero bytes multiply a state by. One entry for each bit of a 64-bit length.
inline constexpr std::array<uint32_t, 64> kShiftByBytes = [] {
    std::array<uint32_t, 64> shifts{};
    uint32_t power = kOne;
    for (int bit = 0; bit < 8; ++bit) power = times_x(power);
    for (uint32_t& shift : shifts) {
        shift = power;
        power = multiply(power, power);
    }
    return shifts;
}();

/// x^exponent.
constexpr uint32_t x_power(uint64_t exponent) noexcept {
    uint32_t power = kOne;
    for (uint64_t bit = exponent % 8; bit > 0; --bit) power = times_x(power);
    uint64_t bytes = exponent / 8;
    for (size_t k = 0; bytes != 0; ++k, bytes >>= 1) {
        if ((bytes & 1u) != 0) power = multiply(kShiftByBytes[k], power);
    }
    return power;
}

/// kSlices[k][b]: the state after byte b and k zero bytes, from state 0.
inline constexpr auto kSlices = [] {
    std::array<std::array<uint32_t, 256>, 8> slices{};
    for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t state = byte;
        for (auto& slice : slices) {
            for (int bit = 0; bit < 8; ++bit) state = times_x(state);
            slice[byte] = state;
        }
    }
    return slices;
}();

}  // namespace mooncake::wire::crc32c_polynomial
