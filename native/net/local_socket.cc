#include "net/local_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <system_error>

#include "net/address.h"

namespace mooncake::net {

namespace {

constexpr std::string_view kScheme = "shm://";

using DescriptorsRoom = std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))>;

// The length of an abstract name counts: what follows it would be a part of it.
socklen_t to_address(const std::string& name, sockaddr_un& address) {
    address.sun_family = AF_UNIX;
    const auto length = std::min(name.size(), sizeof address.sun_path - 1);
    std::memcpy(address.sun_path + 1, name.data(), length);
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
}

FileDescriptor new_local_socket() {
    return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

}  // namespace

std::string local_text(const LocalEndpoint& endpoint) {
    return std::string(kScheme) + endpoint.place + "/" + std::to_string(endpoint.user) + "/" + endpoint.name;
}

std::optional<LocalEndpoint> parse_local_endpoint(std::string_view text) {
    if (!text.starts_with(kScheme)) return std::nullopt;
    text.remove_prefix(kScheme.size());
    const auto first = text.find('/');
    const auto second = first == std::string_view::npos ? first : text.find('/', first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    LocalEndpoint endpoint{std::string(text.substr(0, first)), 0, std::string(text.substr(second + 1))};
    const auto user = text.substr(first + 1, second - first - 1);
    const auto [end, error] = std::from_chars(user.data(), user.data() + user.size(), endpoint.user);
    const bool is_number = error == std::errc{} && end == user.data() + user.size();
    if (!is_number || endpoint.place.empty() || endpoint.name.empty()) return std::nullopt;
    return endpoint;
}

std::string this_place() {
    std::ifstream file("/proc/sys/kernel/random/boot_id");
    std::string boot;
    struct stat network{};
    if (!(file >> boot) || ::stat("/proc/self/ns/net", &network) != 0) return {};
    return boot + "." + std::to_string(network.st_ino);
}

FileDescriptor listen_local(const std::string& name, int backlog) {
    sockaddr_un address{};
    const auto length = to_address(name, address);
    FileDescriptor fd = new_local_socket();
    if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        ::listen(fd.get(), backlog) != 0) {
        throw std::system_error(errno, std::generic_category(), "cannot listen on the Unix socket @" + name);
    }
    return fd;
}

Dialled dial_local(const std::string& name) {
    Dialled result;
    const auto failed = [&](const std::string& why) {
        result.fd.reset();
        result.why = "@" + name + ": " + why;
        return std::move(result);
    };
    sockaddr_un address{};
    const auto length = to_address(name, address);
    result.fd = new_local_socket();
    // A Unix socket connects at once or not at all.
    if (!result.fd || ::connect(result.fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
        return failed(errno_text(errno));
    }
    const auto user = peer_user(result.fd.get());
    if (user != ::geteuid()) {
        return failed("another user listens there (uid " + (user ? std::to_string(*user) : "unknown") + ")");
    }
    return result;
}

std::optional<uid_t> peer_user(int fd) {
    int domain = 0;
    socklen_t length = sizeof domain;
    if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX)
        return std::nullopt;
    ucred credentials{};
    length = sizeof credentials;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return std::nullopt;
    return credentials.uid;
}

ssize_t send_with_descriptors(int fd, std::span<const iovec> pieces, std::span<const FileDescriptor> sent,
                              int flags) {
    alignas(cmsghdr) DescriptorsRoom control{};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(pieces.data());
    message.msg_iovlen = pieces.size();
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(sent.size() * sizeof(int));
    cmsghdr* const rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sent.size() * sizeof(int));
    for (std::size_t i = 0; i < sent.size(); ++i) {
        const int descriptor = sent[i].get();
        std::memcpy(CMSG_DATA(rights) + i * sizeof(int), &descriptor, sizeof descriptor);
    }
    return ::sendmsg(fd, &message, flags);
}

ssize_t receive_with_descriptors(int fd, std::span<std::uint8_t> room, std::vector<FileDescriptor>& taken,
                                 int flags) {
    alignas(cmsghdr) DescriptorsRoom control;
    iovec piece{room.data(), room.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t n = ::recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC);
    if (n < 0) return n;
    for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (std::size_t i = 0; i < count; ++i) {
            int descriptor = -1;
            std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof descriptor);
            taken.emplace_back(descriptor);
        }
    }
    return n;
}

}  // namespace mooncake::net
