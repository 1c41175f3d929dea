#include "wire/digest.h"

#include <bit>
#include <cstring>

namespace mooncake::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "the digest is defined over little-endian words");

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5u;
constexpr size_t kStripeBytes = 32;

uint64_t read_u64(const uint8_t* data) noexcept {
    uint64_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

uint32_t read_u32(const uint8_t* data) noexcept {
    uint32_t word;
    std::memcpy(&word, data, sizeof word);
    return word;
}

uint64_t mix_lane(uint64_t lane, uint64_t word) noexcept {
    return std::rotl(lane + word * kPrime2, 31) * kPrime1;
}

uint64_t merge_lane(uint64_t digest, uint64_t lane) noexcept {
    return (digest ^ mix_lane(0, lane)) * kPrime1 + kPrime4;
}

/// The whole stripes of the input through four lanes; moves `data` past them.
uint64_t digest_stripes(const uint8_t*& data, const uint8_t* end, uint64_t seed) noexcept {
    uint64_t a = seed + kPrime1 + kPrime2;
    uint64_t b = seed + kPrime2;
    uint64_t c = seed;
    uint64_t d = seed - kPrime1;
    for (; static_cast<size_t>(end - data) >= kStripeBytes; data += kStripeBytes) {
        a = mix_lane(a, read_u64(data));
        b = mix_lane(b, read_u64(data + 8));
        c = mix_lane(c, read_u64(data + 16));
        d = mix_lane(d, read_u64(data + 24));
    }
    uint64_t digest = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    for (const uint64_t lane : {a, b, c, d}) digest = merge_lane(digest, lane);
    return digest;
}

uint64_t digest_tail(uint64_t digest, const uint8_t* data, const uint8_t* end) noexcept {
    for (; end - data >= 8; data += 8) {
        digest = std::rotl(digest ^ mix_lane(0, read_u64(data)), 27) * kPrime1 + kPrime4;
    }
    if (end - data >= 4) {
        digest = std::rotl(digest ^ (read_u32(data) * kPrime1), 23) * kPrime2 + kPrime3;
        data += 4;
    }
    for (; data != end; ++data) digest = std::rotl(digest ^ (*data * kPrime5), 11) * kPrime1;
    return digest;
}

uint64_t avalanche(uint64_t digest) noexcept {
    digest = (digest ^ (digest >> 33)) * kPrime2;
    digest = (digest ^ (digest >> 29)) * kPrime3;
    return digest ^ (digest >> 32);
}

}  // namespace

uint64_t xxh64(const void* data, size_t size, uint64_t seed) noexcept {
    const auto* next = static_cast<const uint8_t*>(data);
    const uint8_t* const end = next + size;
    uint64_t digest = size >= kStripeBytes ? digest_stripes(next, end, seed) : seed + kPrime5;
    digest += size;
    return avalanche(digest_tail(digest, next, end));
}

uint64_t key_digest(std::string_view tenant, std::string_view key) noexcept {
    return xxh64(key.data(), key.size(), xxh64(tenant.data(), tenant.size(), 0));
}

}  // namespace mooncake::wire
