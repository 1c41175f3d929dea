#include "wire/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#include "wire/crc32c_kernels.h"
#include "wire/crc32c_polynomial.h"

namespace mooncake::wire {
namespace {

static_assert(std::endian::native == std::endian::little, "states and words are read little-endian");

/// Eight table look-ups for eight bytes ("slicing by 8"): for processors without a CRC instruction.
uint32_t update_by_table(uint32_t state, const uint8_t* data, size_t size) noexcept {
    const auto& slices = crc32c_polynomial::kSlices;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        std::memcpy(&word, data, sizeof word);
        word ^= state;
        state = slices[7][word & 0xFFu] ^ slices[6][(word >> 8) & 0xFFu] ^ slices[5][(word >> 16) & 0xFFu] ^
                slices[4][(word >> 24) & 0xFFu] ^ slices[3][(word >> 32) & 0xFFu] ^
                slices[2][(word >> 40) & 0xFFu] ^ slices[1][(word >> 48) & 0xFFu] ^ slices[0][word >> 56];
    }
    for (; size > 0; ++data, --size) state = (state >> 8) ^ slices[0][(state ^ *data) & 0xFFu];
    return state;
}

struct Available {
    std::array<Crc32cImplementation, kCrc32cImplementationsMax> list{};
    size_t count = 0;

    Available() noexcept {
        list[count++] = {"table", update_by_table, copy_in_chunks<update_by_table>};
        count += find_processor_crc32c(std::span(list).subspan(count));
    }
};

const Available& available() noexcept {
    static const Available found;
    return found;
}

}  // namespace

std::span<const Crc32cImplementation> crc32c_implementations() noexcept {
    return std::span(available().list).first(available().count);
}

std::string_view crc32c_implementation() noexcept { return crc32c_implementations().back().name; }

uint32_t crc32c(uint32_t crc, const void* data, size_t size) noexcept {
    static const auto update = crc32c_implementations().back().update;
    return ~update(~crc, static_cast<const uint8_t*>(data), size);
}

uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t length_b) noexcept {
    // The inversions cancel: what is left of a after length_b more bytes is its checksum times x^(8
    // length_b).
    for (size_t k = 0; length_b != 0; ++k, length_b >>= 1) {
        if ((length_b & 1u) != 0) {
            crc_a = crc32c_polynomial::multiply(crc32c_polynomial::kShiftByBytes[k], crc_a);
        }
    }
    return crc_a ^ crc_b;
}

uint32_t crc32c_copy(uint32_t crc, void* destination, const void* source, size_t size) noexcept {
    static const auto copy = crc32c_implementations().back().copy;
    return ~copy(~crc, static_cast<uint8_t*>(destination), static_cast<const uint8_t*>(source), size);
}

}  // namespace mooncake::wire
