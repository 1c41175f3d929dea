#include "weather.h"

#include <algorithm>

namespace simulation {

namespace {

constexpr Ms kShortDelayMaxMs = 60;
constexpr std::uint64_t kBesideADeadlineIn10000 = 2'500;

}  // namespace

Fate FairWeather::passage(const Passage& passage) {
    return {random_.below(latency_max_ms_ + 1) + passage.bytes / bytes_a_ms_, false};
}

Fate Resets::passage(const Passage& passage) {
    Fate fate = inside_->passage(passage);
    if (is_on_ && random_.chance(in_10000_)) {
        ++counts_[Fault::kReset];
        fate.is_broken = true;
    }
    return fate;
}

Fate Delays::passage(const Passage& passage) {
    Fate fate = inside_->passage(passage);
    if (!is_on_ || !random_.chance(in_10000_)) return fate;
    ++counts_[Fault::kDelay];
    if (random_.chance(kBesideADeadlineIn10000)) {
        fate.delay_ms += random_.pick(deadlines_) + random_.below(3) - 1;
    } else {
        fate.delay_ms += random_.between(1, kShortDelayMaxMs);
    }
    return fate;
}

Fate Partitions::passage(const Passage& passage) {
    Fate fate = inside_->passage(passage);
    const auto cut = cuts_.find({passage.from, passage.to});
    const Ms now_ms = World::current()->now_ms();
    if (cut != cuts_.end() && cut->second > now_ms) fate.delay_ms += cut->second - now_ms;
    return fate;
}

Fate IllHosts::passage(const Passage& passage) {
    Fate fate = inside_->passage(passage);
    fate.delay_ms *= std::max(passage.from->slowness, passage.to->slowness);
    const Ms now_ms = World::current()->now_ms();
    const Ms muted_until = std::max(passage.from->muted_until, passage.to->muted_until);
    if (muted_until > now_ms) fate.delay_ms += muted_until - now_ms;
    return fate;
}

}  // namespace simulation
