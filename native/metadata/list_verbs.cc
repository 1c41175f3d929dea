// list: a walk over the keys of one tenant, in bounded steps.
#include <algorithm>

#include "metadata/machine.h"

namespace mooncake::metadata {

namespace {

constexpr std::uint32_t kListDefault = 1'000;
// Half of what a frame may carry: the longest keys end an answer early.
constexpr std::size_t kListBytesMax = wire::kBodyBytesMax / 2;
constexpr std::size_t kSlotsAStep = 16'384;

}  // namespace

bool Machine::list(State& command) {
    const auto& request = std::get<wire::List>(command.message);
    const std::uint32_t tenant = sessions_.find(command.prefix.session)->tenant;
    const std::uint32_t limit =
        request.limit == 0 ? kListDefault
                           : std::min(request.limit, static_cast<std::uint32_t>(wire::kBatchKeysMax));
    wire::Writer writer(command.body);
    if (command.body.empty()) {
        command.list_cursor = request.cursor;
        writer.put(std::uint64_t{0});
        writer.put(std::uint32_t{0});
    }
    scanned_.clear();
    command.list_cursor =
        table_.scan(command.list_cursor, std::min(limit - command.listed_count, options_.keys_a_step_max),
                    kSlotsAStep, scanned_);
    for (const Ref ref : scanned_) {
        const Object& object = table_.object(ref);
        if (object.tenant != tenant || !object.key().starts_with(request.key_prefix) || !is_listed(object)) {
            continue;
        }
        std::uint8_t flags = object.has(kHardPin) ? std::uint8_t{wire::kPutHardPin} : std::uint8_t{0};
        if (object.has(kSoftPin)) flags = wire::kPutSoftPin;
        writer.text16(object.key());
        writer.put(object.size);
        writer.put(object.put_id);
        writer.put(object.replica_count);
        writer.put(flags);
        ++command.listed_count;
    }
    const bool full = command.listed_count >= limit || command.body.size() > kListBytesMax;
    if (command.list_cursor != 0 && !full) return false;
    writer.patch(0, command.list_cursor);
    writer.patch(sizeof(std::uint64_t), command.listed_count);
    command.finish(wire::Status::kOk);
    return true;
}

// Whether a lookup would find it: visible, within its TTL, and on a segment of the pool.
bool Machine::is_listed(const Object& object) const {
    if (!object.is_visible()) return false;
    const std::uint64_t until = ttl_until_ms(object);
    if (until != 0 && until <= now_ms_) return false;
    const bool is_judged = may_be_dead(object);
    for (std::size_t i = 0; i < object.replica_count; ++i) {
        const Placed one = placed(object, i);
        if (segments_.at(one.segment).is_mounted() && !(is_judged && is_told_dead(object, one))) return true;
    }
    return false;
}

}  // namespace mooncake::metadata
