// Lost replicas made anew, in the background: which objects lack some, and how fast that may go.
//
// An object gets in line when it loses a replica, or never had all (drop_expelled_replicas, put_end). The
// line is bounded: what finds it full is found later by a search of the whole index, which also runs when a
// segment joins and when a rebuild is over. Nothing but replicas_wanted decides that an object is in need, so
// losing the line loses nothing.
#include <algorithm>

#include "metadata/machine.h"
#include "wire/range_bytes.h"

namespace mooncake::metadata {

namespace {

constexpr std::uint8_t kAttemptsMax = 3;
constexpr std::uint64_t kRetryMs = 1'000;
// A copy costs messages too: small ones count as much as this against repair_bytes_per_s.
constexpr std::uint64_t kCopyCostMin = 64u << 10;
// Objects that no segment has room for are looked for again after this long, or when a segment joins.
constexpr std::uint64_t kSearchAgainMs = 60'000;
// Objects looked at in one go: most are in need no more, or wait.
constexpr std::size_t kExaminedMax = 64;

}  // namespace

bool Machine::is_repairing() const {
    // A later reign's nodes may still come with the replicas that seem to be lost.
    return options_.repair_bytes_per_s > 0 && !(is_rebuilding() && epoch_ > 1);
}

void Machine::queue_repair(Ref ref, std::uint8_t attempts) {
    const Object& object = table_.object(ref);
    if (options_.repair_bytes_per_s == 0 || !object.is_visible()) return;
    if (object.replica_count >= object.replicas_wanted) return;
    if (attempts >= kAttemptsMax) {
        ++counters_.repairs_given_up;
        search_later();
    } else if (repairs_.size() >= options_.repair_queue_max) {
        is_search_due_ = true;
    } else {
        repairs_.push_back({ref, object.put_id, attempts > 0 ? later(kRetryMs) : 0, attempts});
    }
}

void Machine::search_later() {
    if (search_at_ms_ == 0) search_at_ms_ = later(kSearchAgainMs);
}

// True: nothing can be done now.
bool Machine::repair(Effects& effects) {
    if (!is_repairing()) return true;
    earn_repair_credit();
    for (std::size_t examined = 0; !repairs_.empty() && examined < kExaminedMax; ++examined) {
        const Needy next = repairs_.front();
        if (next.due_ms > now_ms_ || repair_credit_ <= 0 || !may_copy_more()) return true;
        Ref ref = next.ref;
        if (table_.object(ref).put_id != next.put_id || !freshen(ref, effects) ||
            table_.object(ref).put_id != next.put_id || table_.object(ref).has(kGuarded) ||
            table_.object(ref).replica_count >= table_.object(ref).replicas_wanted) {
            repairs_.pop_front();
            continue;
        }
        const Started started = start_repair(next, effects);
        if (started == Started::kLater) return true;
        repairs_.pop_front();
        if (started == Started::kNever) ++counters_.repairs_given_up;
    }
    return repairs_.empty();
}

Machine::Started Machine::start_repair(const Needy& needy, Effects& effects) {
    const Object& object = table_.object(needy.ref);
    const auto totals = segments_.dram_totals();
    const std::uint64_t bytes = wire::range_bytes(object.size, wire::Tier::kDram);
    if (static_cast<double>(totals.used_bytes + bytes) >
        options_.repair_low_watermark_ratio * static_cast<double>(totals.capacity_bytes)) {
        return Started::kLater;
    }
    const CopyPlace place = choose_copy_target(object, kNoSegment, 1.0);
    if (!place.found) {
        if (place.may_come) return Started::kLater;
        lacks_segments_ = true;
        if (place.is_full) search_later();
        return Started::kNever;
    }
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed source = placed(object, i);
        const Segment& segment = segments_.at(source.segment);
        if (!answers(segment) || is_busy_copying(segment.owner)) continue;
        repair_credit_ -= static_cast<std::int64_t>(std::max(bytes, kCopyCostMin));
        start_copy(needy.ref, source, place.segment, {false, needy.attempts, 0}, effects);
        return Started::kYes;
    }
    return Started::kLater;
}

// A tenth of a second may be made up for.
void Machine::earn_repair_credit() {
    const auto rate = static_cast<std::int64_t>(options_.repair_bytes_per_s);
    const std::uint64_t passed_ms = std::min<std::uint64_t>(now_ms_ - repair_credit_ms_, 1'000);
    repair_credit_ms_ = now_ms_;
    repair_credit_ += rate * static_cast<std::int64_t>(passed_ms) / 1'000;
    repair_credit_ = std::min(repair_credit_, std::max<std::int64_t>(rate / 10, 1));
}

// A bounded step of the search for objects that lack replicas. True: none is under way.
bool Machine::search_needy(std::size_t& budget, Effects& effects) {
    if (search_at_ms_ != 0 && search_at_ms_ <= now_ms_) {
        search_at_ms_ = 0;
        is_search_due_ = true;
    }
    if (!is_repairing()) return true;
    if (is_search_due_ && !is_searching_ && repairs_.empty()) {
        is_search_due_ = false;
        is_searching_ = true;
        ++counters_.repair_searches;
    }
    if (!is_searching_) return true;
    if (repairs_.size() >= options_.repair_queue_max) return true;  // goes on when they are fewer
    scanned_.clear();
    search_cursor_ = table_.scan(search_cursor_,
                                 std::min<std::size_t>(budget, options_.repair_queue_max - repairs_.size()),
                                 kExaminedAKey * options_.keys_a_step_max, scanned_);
    budget -= std::min(budget, scanned_.size());
    const std::vector<Ref> found = scanned_;
    for (const Ref ref : found) {
        if (!table_.object(ref).is_visible() || table_.object(ref).has(kGuarded)) continue;
        if (drop_expelled_replicas(ref, effects)) queue_repair(ref, 0);
    }
    is_searching_ = search_cursor_ != 0;
    return !is_searching_;
}

}  // namespace mooncake::metadata
