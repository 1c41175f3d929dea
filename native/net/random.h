// Chance from the operating system, for what must differ between processes: their uuids and seeds. Cores are
// given what they need of it.
#pragma once

#include <cstdint>

#include "wire/ids.h"

namespace mooncake::net {

// Throw std::system_error when the system gives none.
wire::Uuid random_uuid();
std::uint64_t random_seed();

}  // namespace mooncake::net
