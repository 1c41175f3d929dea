// Large pieces of memory for tables: they start where a large page does, so that the system may use one.
//
// A batch looks at keys all over a table. With pages of 4 KiB more than a third of its time went into finding
// where they lie, which the processor remembers of a few thousand pages only (docs/benchmarks.md). A table
// asks for large pages where it has filled them, not before: their first touch would cost one put
// milliseconds.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace mooncake::metadata {

inline constexpr std::size_t kLargePageBytes = std::size_t{2} << 20;

// Has the system back this memory by large pages, soon and where it can. The driver's: a core calls no
// system.
using PreferLargePages = void (*)(void* memory, std::size_t bytes);

struct ReturnMemory {
    std::align_val_t alignment{};
    void operator()(std::byte* memory) const { ::operator delete(memory, alignment); }
};
using Memory = std::unique_ptr<std::byte, ReturnMemory>;

// Not initialised, and not touched.
inline Memory new_memory(std::size_t bytes) {
    constexpr std::size_t kLineBytes = 64;
    const auto alignment =
        static_cast<std::align_val_t>(bytes >= kLargePageBytes ? kLargePageBytes : kLineBytes);
    return {static_cast<std::byte*>(::operator new(bytes, alignment)), ReturnMemory{alignment}};
}

}  // namespace mooncake::metadata
