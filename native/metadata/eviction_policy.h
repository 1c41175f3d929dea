// How long a value is worth keeping: a policy gives each access a rank, and of those that nobody asked to
// keep the lowest rank goes first (eviction_order.h). Nothing else is its business: leases, pins and guards
// are above it.
//
// A policy may use the order of the keys in one request, which is the order of blocks in a prefix, and what
// it remembers of keys that are gone. Pure: it has no clock but that of accesses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace mooncake::metadata {

enum class EvictionPolicyKind : std::uint8_t { kLru, kAdaptive };
inline constexpr std::pair<std::string_view, EvictionPolicyKind> kEvictionPolicies[] = {
    {"adaptive", EvictionPolicyKind::kAdaptive},  // the first is the default
    {"lru", EvictionPolicyKind::kLru},
};

// A key that a request asks for.
struct Access {
    std::uint64_t hash = 0;  // of tenant and key, as the index has it
    bool is_present = false;
    std::uint64_t rank = 0;  // the answer, for one that is present
};

// How many keys are visible, and about how many like them fit.
struct PoolSize {
    std::size_t live_keys = 0;
    double keys_that_fit = 0;
};

// What a policy tells operators; shares are of all accesses.
struct PolicyFigures {
    std::size_t history_entries = 0;  // keys remembered, whether they are there or not
    double expected_hits = 0;         // the share that it expects to hit
    double reachable_hits = 0;        // and in a pool without an end, as far as it remembers
};

class EvictionPolicy {
  public:
    virtual ~EvictionPolicy() = default;

    // Keys `first` and up of a request that asks for `total`, in order.
    virtual void asked(std::span<Access> keys, std::size_t first, std::size_t total,
                       const PoolSize& pool) = 0;
    // A put begins: keys that are not there, in order. They may have been asked for before, or not.
    virtual void put_began(std::span<Access> keys, const PoolSize& pool) = 0;
    // A value became visible: its rank.
    virtual std::uint64_t filled(std::uint64_t hash) = 0;
    // The newest rank there is.
    virtual std::uint64_t clock() const = 0;

    virtual std::size_t bytes() const { return 0; }
    virtual PolicyFigures figures() const { return {}; }
};

std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionPolicyKind kind);
std::optional<EvictionPolicyKind> eviction_policy_of(std::string_view name);
std::string_view name_of(EvictionPolicyKind kind);

}  // namespace mooncake::metadata
