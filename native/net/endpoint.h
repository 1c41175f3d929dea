// Addresses as text: "tcp://host:port", "[::1]:50001", and what the local machine can say about itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mooncake::net {

struct Endpoint {
    std::string host;
    std::uint16_t port = 0;
};

// "host:port", "[v6]:port", with or without "tcp://"; nullopt when it is not that.
std::optional<Endpoint> parse_endpoint(std::string_view text);
std::string to_text(const Endpoint& endpoint);  // "host:port" or "[v6]:port"

}  // namespace mooncake::net
