#include "metadata/eviction_policy.h"

#include "metadata/adaptive_policy.h"

namespace mooncake::metadata {

namespace {

// Least recently used first: a rank is the access's number.
class LruPolicy : public EvictionPolicy {
  public:
    void asked(std::span<Access> keys, std::size_t, std::size_t, const PoolSize&) override {
        for (auto& key : keys) {
            if (key.is_present) key.rank = ++clock_;
        }
    }
    void put_began(std::span<Access>, const PoolSize&) override {}
    std::uint64_t filled(std::uint64_t) override { return ++clock_; }
    std::uint64_t clock() const override { return clock_; }

  private:
    std::uint64_t clock_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_eviction_policy(EvictionPolicyKind kind) {
    if (kind == EvictionPolicyKind::kLru) return std::make_unique<LruPolicy>();
    return std::make_unique<AdaptivePolicy>();
}

std::optional<EvictionPolicyKind> eviction_policy_of(std::string_view name) {
    for (const auto& [known, kind] : kEvictionPolicies) {
        if (known == name) return kind;
    }
    return std::nullopt;
}

std::string_view name_of(EvictionPolicyKind kind) {
    for (const auto& [name, known] : kEvictionPolicies) {
        if (known == kind) return name;
    }
    return {};
}

}  // namespace mooncake::metadata
