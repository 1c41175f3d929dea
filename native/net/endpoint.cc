#include "net/endpoint.h"

#include <charconv>

namespace mooncake::net {

namespace {

constexpr std::size_t kHostBytesMax = 253;  // of a DNS name

std::optional<std::uint16_t> parse_port(std::string_view text) {
    std::uint16_t port = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return port;
}

bool is_host(std::string_view host, bool bracketed) {
    if (host.empty() || host.size() > kHostBytesMax) return false;
    for (const char c : host) {
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '.' || c == '-' || c == '_';
        if (!plain && !(bracketed && (c == ':' || c == '%'))) return false;
    }
    return true;
}

}  // namespace

std::optional<Endpoint> parse_endpoint(std::string_view text) {
    constexpr std::string_view kScheme = "tcp://";
    if (text.starts_with(kScheme)) text.remove_prefix(kScheme.size());
    const bool bracketed = text.starts_with('[');
    const std::size_t host_end = bracketed ? text.find(']') : text.find(':');
    if (host_end == std::string_view::npos) return std::nullopt;
    const std::string_view host = bracketed ? text.substr(1, host_end - 1) : text.substr(0, host_end);
    std::string_view rest = text.substr(host_end + (bracketed ? 1 : 0));
    if (!rest.starts_with(':') || !is_host(host, bracketed)) return std::nullopt;
    const auto port = parse_port(rest.substr(1));
    if (!port) return std::nullopt;
    return Endpoint{std::string(host), *port};
}

std::string to_text(const Endpoint& endpoint) {
    const bool bracketed = endpoint.host.find_first_of(":%") != std::string::npos;
    return (bracketed ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

}  // namespace mooncake::net
