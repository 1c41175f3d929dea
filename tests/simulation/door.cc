#include "door.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "world.h"

namespace simulation {

namespace {

constexpr int kLookUpMs = 50;

std::string frame(char type, char flags, char stream, const std::string& payload) {
    const std::size_t length = payload.size();
    std::string bytes{static_cast<char>(length >> 16),
                      static_cast<char>(length >> 8 & 0xFF),
                      static_cast<char>(length & 0xFF),
                      type,
                      flags,
                      0,
                      0,
                      0,
                      stream};
    return bytes + payload;
}

std::string field(char number, const std::string& text) {
    return std::string{static_cast<char>(number << 3 | 2), static_cast<char>(text.size())} + text;
}

// Settings, the head of the answer, and one message: lane, epoch, uuid, version.
std::string discover_reply(const mooncake::master::Master& master) {
    constexpr char kData = 0, kHeaders = 1, kSettings = 4;
    constexpr char kEndHeaders = 4, kEndStream = 1;
    std::string message = field(1, ":" + std::to_string(master.lane_port()));
    message += static_cast<char>(2 << 3);
    for (std::uint64_t left = master.epoch(); true; left >>= 7) {
        message += static_cast<char>((left & 0x7F) | (left >= 0x80 ? 0x80 : 0));
        if (left < 0x80) break;
    }
    message += field(3, {master.uuid().begin(), master.uuid().end()});
    message += field(4, "simulation");
    const std::string head{0, 0, 0, 0, static_cast<char>(message.size())};
    return frame(kSettings, 0, 0, "") + frame(kHeaders, kEndHeaders, 1, "\x88") +
           frame(kData, kEndStream, 1, head + message);
}

}  // namespace

void serve_discovery(const mooncake::master::Master& master, std::uint16_t port,
                     const std::shared_ptr<const bool>& is_over) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    ::bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    ::listen(listener, 16);
    std::vector<pollfd> open{{listener, POLLIN, 0}};
    while (!*is_over) {
        ::poll(open.data(), open.size(), kLookUpMs);
        if (*is_over) break;
        for (std::size_t i = open.size(); i-- > 1;) {
            if (open[i].revents == 0) continue;
            std::array<char, 4096> asked;
            // Any bytes are the question: it fits into one segment.
            if (::recv(open[i].fd, asked.data(), asked.size(), MSG_DONTWAIT) > 0) {
                const std::string reply = discover_reply(master);
                if (::send(open[i].fd, reply.data(), reply.size(), MSG_NOSIGNAL) > 0) continue;
            }
            ::close(open[i].fd);
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
        }
        if (open[0].revents == 0) continue;
        const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
        if (accepted >= 0) open.push_back({accepted, POLLIN, 0});
    }
    for (const pollfd& each : open) ::close(each.fd);
}

}  // namespace simulation
