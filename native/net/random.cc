#include "net/random.h"

#include <sys/random.h>

#include <cerrno>
#include <system_error>

namespace mooncake::net {

namespace {

template <class Value>
Value random_value() {
    Value value{};
    // So few bytes come whole, or not at all.
    if (::getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
        throw std::system_error(errno, std::generic_category(), "getrandom");
    }
    return value;
}

}  // namespace

wire::Uuid random_uuid() { return random_value<wire::Uuid>(); }
std::uint64_t random_seed() { return random_value<std::uint64_t>(); }

}  // namespace mooncake::net
