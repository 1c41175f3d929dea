// CRC-32C with x86-64's instructions: CRC32 (SSE4.2), PCLMULQDQ on 16-byte lanes, VPCLMULQDQ on 32-byte
// vectors.
//
// Folding: a lane V that lies D bits before another may be added to it as V * x^D modulo the polynomial. With
// V's halves H (first in memory, the higher powers) and L, that is H * x^(D+64) + L * x^D: two carry-less
// products with constants of 32 bits. Reflected, a product comes out one bit short and a constant in the low
// half of its register stands for itself times x^32; hence the exponents D + 64 - 33 and D - 33. What is left
// at the end, one vector, has the same remainder as all the data, and the CRC32 instruction takes it from
// there.
//
// Folding reads memory in one stream, which the hardware's prefetcher follows; interleaving three streams of
// CRC32 instructions is as fast in cache and loses to a single stream on cold data.

#include "wire/crc32c_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

#include "wire/crc32c_polynomial.h"

namespace mooncake::wire {
namespace {

#define MOONCAKE_TARGET_SSE42 __attribute__((target("sse4.2,crc32")))
#define MOONCAKE_TARGET_PCLMUL __attribute__((target("sse4.2,crc32,pclmul")))
#define MOONCAKE_TARGET_VPCLMUL __attribute__((target("sse4.2,crc32,pclmul,avx2,vpclmulqdq")))

/// The two constants that move a lane by kBits.
template <uint64_t kBits>
struct FoldBy {
    static constexpr auto kFirst = static_cast<int64_t>(crc32c_polynomial::x_power(kBits + 31));
    static constexpr auto kSecond = static_cast<int64_t>(crc32c_polynomial::x_power(kBits - 33));
};

MOONCAKE_TARGET_SSE42 uint32_t update_by_sse42(uint32_t state, const uint8_t* data, size_t size) noexcept {
    uint64_t wide = state;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        std::memcpy(&word, data, sizeof word);
        wide = _mm_crc32_u64(wide, word);
    }
    auto narrow = static_cast<uint32_t>(wide);
    for (; size > 0; ++data, --size) narrow = _mm_crc32_u8(narrow, *data);
    return narrow;
}

template <uint64_t kBits>
MOONCAKE_TARGET_PCLMUL inline __m128i fold_lane(__m128i lane, __m128i next) noexcept {
    const __m128i constants = _mm_set_epi64x(FoldBy<kBits>::kSecond, FoldBy<kBits>::kFirst);
    const __m128i first = _mm_clmulepi64_si128(lane, constants, 0x00);
    const __m128i second = _mm_clmulepi64_si128(lane, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), next);
}

MOONCAKE_TARGET_PCLMUL inline __m128i load_lane(const uint8_t* data) noexcept {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(data));
}

MOONCAKE_TARGET_PCLMUL uint32_t update_by_pclmul(uint32_t state, const uint8_t* data, size_t size) noexcept {
    constexpr size_t kStep = 64;
    if (size < 2 * kStep) return update_by_sse42(state, data, size);
    __m128i a = _mm_xor_si128(load_lane(data), _mm_cvtsi32_si128(static_cast<int>(state)));
    __m128i b = load_lane(data + 16);
    __m128i c = load_lane(data + 32);
    __m128i d = load_lane(data + 48);
    for (data += kStep, size -= kStep; size >= kStep; data += kStep, size -= kStep) {
        a = fold_lane<8 * kStep>(a, load_lane(data));
        b = fold_lane<8 * kStep>(b, load_lane(data + 16));
        c = fold_lane<8 * kStep>(c, load_lane(data + 32));
        d = fold_lane<8 * kStep>(d, load_lane(data + 48));
    }
    alignas(16) uint8_t rest[16];
    const __m128i folded = fold_lane<384>(a, fold_lane<256>(b, fold_lane<128>(c, d)));
    _mm_store_si128(reinterpret_cast<__m128i*>(rest), folded);
    return update_by_sse42(update_by_sse42(0, rest, sizeof rest), data, size);
}

template <uint64_t kBits>
MOONCAKE_TARGET_VPCLMUL inline __m256i fold_vector(__m256i vector, __m256i next) noexcept {
    const __m256i constants = _mm256_set_epi64x(FoldBy<kBits>::kSecond, FoldBy<kBits>::kFirst,
                                                FoldBy<kBits>::kSecond, FoldBy<kBits>::kFirst);
    const __m256i first = _mm256_clmulepi64_epi128(vector, constants, 0x00);
    const __m256i second = _mm256_clmulepi64_epi128(vector, constants, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(first, second), next);
}

/// Loads 32 bytes and, if asked, stores them: a copy whose checksum costs no second pass.
template <bool kCopies>
MOONCAKE_TARGET_VPCLMUL inline __m256i take_vector(uint8_t* to, const uint8_t* from, size_t at) noexcept {
    const __m256i vector = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + at));
    if constexpr (kCopies) _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + at), vector);
    return vector;
}

/// The state after `size` bytes, a multiple of 128 and at least that. `to` is null unless kCopies.
template <bool kCopies>
MOONCAKE_TARGET_VPCLMUL uint32_t fold_vectors(uint32_t state, uint8_t* to, const uint8_t* from,
                                              size_t size) noexcept {
    constexpr size_t kStep = 128;
    constexpr size_t kPrefetchBytes =
        1024;  // 15 % on cold data, nothing on warm; beyond the end it is harmless
    const __m256i start = _mm256_zextsi128_si256(_mm_cvtsi32_si128(static_cast<int>(state)));
    __m256i a = _mm256_xor_si256(take_vector<kCopies>(to, from, 0), start);
    __m256i b = take_vector<kCopies>(to, from, 32);
    __m256i c = take_vector<kCopies>(to, from, 64);
    __m256i d = take_vector<kCopies>(to, from, 96);
    for (size_t done = kStep; done < size; done += kStep) {
        _mm_prefetch(reinterpret_cast<const char*>(from + done + kPrefetchBytes), _MM_HINT_T0);
        _mm_prefetch(reinterpret_cast<const char*>(from + done + kPrefetchBytes + 64), _MM_HINT_T0);
        a = fold_vector<8 * kStep>(a, take_vector<kCopies>(to, from, done));
        b = fold_vector<8 * kStep>(b, take_vector<kCopies>(to, from, done + 32));
        c = fold_vector<8 * kStep>(c, take_vector<kCopies>(to, from, done + 64));
        d = fold_vector<8 * kStep>(d, take_vector<kCopies>(to, from, done + 96));
    }
    alignas(32) uint8_t rest[32];
    const __m256i folded = fold_vector<768>(a, fold_vector<512>(b, fold_vector<256>(c, d)));
    _mm256_store_si256(reinterpret_cast<__m256i*>(rest), folded);
    return update_by_sse42(0, rest, sizeof rest);
}

/// Below this the last 32 bytes' 12 cycles and the set-up cost more than folding saves.
constexpr size_t kVectorBytesMin = 256;
constexpr size_t kVectorStepMask = 127;

MOONCAKE_TARGET_VPCLMUL uint32_t update_by_vpclmul(uint32_t state, const uint8_t* data,
                                                   size_t size) noexcept {
    if (size < kVectorBytesMin) return update_by_pclmul(state, data, size);
    const size_t folded = size & ~kVectorStepMask;
    state = fold_vectors<false>(state, nullptr, data, folded);
    return update_by_sse42(state, data + folded, size - folded);
}

MOONCAKE_TARGET_VPCLMUL uint32_t copy_by_vpclmul(uint32_t state, uint8_t* to, const uint8_t* from,
                                                 size_t size) noexcept {
    if (size < kVectorBytesMin) return copy_in_chunks<update_by_pclmul>(state, to, from, size);
    const size_t folded = size & ~kVectorStepMask;
    state = fold_vectors<true>(state, to, from, folded);
    return copy_in_chunks<update_by_sse42>(state, to + folded, from + folded, size - folded);
}

}  // namespace

size_t find_processor_crc32c(std::span<Crc32cImplementation> found) noexcept {
    __builtin_cpu_init();
    size_t count = 0;
    if (!__builtin_cpu_supports("sse4.2")) return count;
    found[count++] = {"sse4.2", update_by_sse42, copy_in_chunks<update_by_sse42>};
    if (!__builtin_cpu_supports("pclmul")) return count;
    found[count++] = {"pclmulqdq", update_by_pclmul, copy_in_chunks<update_by_pclmul>};
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("vpclmulqdq")) return count;
    found[count++] = {"vpclmulqdq", update_by_vpclmul, copy_by_vpclmul};
    return count;
}

}  // namespace mooncake::wire

#endif  // defined(__x86_64__)
