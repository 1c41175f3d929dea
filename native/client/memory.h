// The caller's memory, as calls and transfers name it.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>

namespace mooncake::client {

// A value to be put may lie in several pieces; a target is one.
struct Value {
    const iovec* pieces = nullptr;
    std::size_t piece_count = 0;
    std::uint64_t size = 0;
};
struct Target {
    std::uint8_t* data = nullptr;
    std::uint64_t capacity = 0;
};

}  // namespace mooncake::client
