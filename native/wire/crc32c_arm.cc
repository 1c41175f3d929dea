// CRC-32C on 64-bit ARM (its optional CRC32 instructions), and the empty answer of every other processor
// family.

#include "wire/crc32c_kernels.h"

#if defined(__aarch64__)

#include <arm_acle.h>
#include <sys/auxv.h>

#include <cstring>

namespace mooncake::wire {
namespace {

/// HWCAP_CRC32 of the kernel's asm/hwcap.h, part of its stable interface.
constexpr unsigned long kHasCrc32 = 1ul << 7;

__attribute__((target("+crc"))) uint32_t update_by_arm_crc(uint32_t state, const uint8_t* data,
                                                           size_t size) noexcept {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        std::memcpy(&word, data, sizeof word);
        state = __crc32cd(state, word);
    }
    for (; size > 0; ++data, --size) state = __crc32cb(state, *data);
    return state;
}

}  // namespace

size_t find_processor_crc32c(std::span<Crc32cImplementation> found) noexcept {
    if ((getauxval(AT_HWCAP) & kHasCrc32) == 0) return 0;
    found[0] = {"arm-crc", update_by_arm_crc, copy_in_chunks<update_by_arm_crc>};
    return 1;
}

}  // namespace mooncake::wire

#elif !defined(__x86_64__)

namespace mooncake::wire {

size_t find_processor_crc32c(std::span<Crc32cImplementation>) noexcept { return 0; }

}  // namespace mooncake::wire

#endif
