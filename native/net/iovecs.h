// Walks lists of iovec as bytes move through them.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace mooncake::net {

// Entries given to one sendmsg or recvmsg: beyond 128 nothing more is gained, and IOV_MAX is 1024.
inline constexpr std::size_t kIovecsACall = 256;

inline std::size_t total_bytes(std::span<const iovec> pieces) {
    std::size_t sum = 0;
    for (const iovec& piece : pieces) sum += piece.iov_len;
    return sum;
}

// Moves the front of `pieces` past `moved` bytes (and past empty entries); what is left is what still has to
// move.
inline void skip_bytes(std::span<iovec>& pieces, std::size_t moved) {
    while (!pieces.empty()) {
        iovec& front = pieces.front();
        if (moved < front.iov_len) {
            if (front.iov_base != nullptr)
                front.iov_base = static_cast<std::uint8_t*>(front.iov_base) + moved;
            front.iov_len -= moved;
            return;
        }
        moved -= front.iov_len;
        pieces = pieces.subspan(1);
    }
}

// One recvmsg into the front of `targets` (a null base: into memory nobody reads), which must not be empty
// and must not start with an empty entry. Returns what recvmsg does; `asked`: how much it could have been, at
// most bytes_max.
ssize_t receive_some(int fd, std::span<const iovec> targets, std::size_t& asked, int flags,
                     std::size_t bytes_max = ~std::size_t{0});

}  // namespace mooncake::net
