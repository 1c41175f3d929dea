// Unix sockets between processes of one host: their abstract names, who may reach them, and file descriptors
// sent along with bytes.
//
// An abstract name is known in one network namespace only, and goes with the process that listens on it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "net/dial.h"
#include "net/file_descriptor.h"

namespace mooncake::net {

// "shm://PLACE/USER/NAME": where a node's memory can be mapped.
struct LocalEndpoint {
    std::string place;  // this_place() of who listens
    uid_t user = 0;
    std::string name;
};
std::string local_text(const LocalEndpoint& endpoint);
std::optional<LocalEndpoint> parse_local_endpoint(std::string_view text);  // nullopt: it is not that

// The boot of this machine and the network namespace of this process: equal for two processes only if an
// abstract name means the same socket to both. Empty where /proc does not tell.
std::string this_place();

// Throws std::system_error naming the socket.
FileDescriptor listen_local(const std::string& name, int backlog);
// Never waits. A socket of another user than this process's is a failure.
Dialled dial_local(const std::string& name);
// Who is at the other end of a Unix socket; nullopt: it is none.
std::optional<uid_t> peer_user(int fd);

inline constexpr std::size_t kDescriptorsMax = 64;  // sent along with one frame

// One sendmsg; the descriptors go with its first byte. Returns what sendmsg does.
ssize_t send_with_descriptors(int fd, std::span<const iovec> pieces, std::span<const FileDescriptor> sent,
                              int flags);
// One recvmsg that also takes what descriptors come with the bytes. Returns what recvmsg does.
ssize_t receive_with_descriptors(int fd, std::span<std::uint8_t> room, std::vector<FileDescriptor>& taken,
                                 int flags);

}  // namespace mooncake::net
