// The cores of native/transfer: registered ranges beside a plain model, the cutting of batches, and how a
// withdrawal waits for those who touch the memory.
#include <algorithm>
#include <map>
#include <thread>
#include <vector>

#include "check.h"
#include "net/event_loop.h"
#include "transfer/core/plan.h"
#include "transfer/core/ranges.h"
#include "transfer/registry.h"

using namespace mooncake;
using transfer::Item;
using transfer::Plan;
using transfer::Portion;
using transfer::RangeKind;
using transfer::Ranges;
using transfer::Registry;
using wire::MemoryRange;
using wire::Status;

namespace {

class Chance {
  public:
    explicit Chance(std::uint64_t seed) : state_(seed * 2 + 1) {}
    std::uint64_t below(std::uint64_t end) {
        state_ = state_ * 6364136223846793005u + 1442695040888963407u;
        return (state_ >> 33) % end;
    }

  private:
    std::uint64_t state_;
};

constexpr std::uint64_t kTop = ~std::uint64_t{0};

// What ranges are, address by address: 0 nothing, else the number of the range.
struct Model {
    static constexpr std::uint64_t kBytes = 64;
    struct Range {
        MemoryRange range;
        bool is_withdrawn = false;
        std::map<Ranges::HoldId, bool> holders;
    };
    std::map<std::uint64_t, Range> ranges;

    const Range* at(std::uint64_t address) const {
        for (const auto& [start, each] : ranges) {
            if (address >= start && address < start + each.range.length) return &each;
        }
        return nullptr;
    }
    bool overlaps(MemoryRange range) const {
        for (std::uint64_t i = 0; i < range.length; ++i) {
            if (at(range.address + i) != nullptr) return true;
        }
        return false;
    }
    bool may_touch(MemoryRange range) const {
        for (std::uint64_t i = 0; i < range.length; ++i) {
            const Range* found = at(range.address + i);
            if (found == nullptr || found->is_withdrawn) return false;
        }
        return range.length > 0;
    }
};

void run_beside_model(std::uint64_t seed) {
    Chance chance(seed);
    Ranges ranges;
    Model model;
    std::vector<Ranges::HoldId> holds;
    for (int step = 0; step < 600; ++step) {
        const MemoryRange range{1 + chance.below(Model::kBytes), chance.below(12)};
        switch (chance.below(5)) {
            case 0: {
                const Status status = ranges.add(range, RangeKind::kRegistered);
                const Status expected = range.length == 0       ? Status::kInvalidParams
                                        : model.overlaps(range) ? Status::kSegmentAlreadyExists
                                                                : Status::kOk;
                CHECK(status == expected);
                if (wire::ok(status)) model.ranges[range.address] = {range, false, {}};
                break;
            }
            case 1: {
                const MemoryRange second{1 + chance.below(Model::kBytes), chance.below(12)};
                std::size_t refused = 0;
                const auto hold = ranges.hold(std::vector{range, second}, refused);
                CHECK_EQUAL(hold.has_value(), model.may_touch(range) && model.may_touch(second));
                if (!hold) {
                    CHECK_EQUAL(refused, model.may_touch(range) ? 1u : 0u);
                    break;
                }
                holds.push_back(*hold);
                for (auto& [start, each] : model.ranges) {
                    for (const MemoryRange& part : {range, second}) {
                        const bool meets = part.address < start + each.range.length &&
                                           start < part.address + part.length;
                        if (meets) each.holders[*hold] = true;
                    }
                }
                break;
            }
            case 2:
                if (!holds.empty()) {
                    const std::size_t which = chance.below(holds.size());
                    ranges.release(holds[which]);
                    for (auto& [start, each] : model.ranges) each.holders.erase(holds[which]);
                    holds.erase(holds.begin() + static_cast<std::ptrdiff_t>(which));
                }
                break;
            case 3: {
                const auto found = model.ranges.find(range.address);
                const bool is_there = found != model.ranges.end() && !found->second.is_withdrawn;
                CHECK(!ranges.begin_withdrawal(range.address, RangeKind::kManaged));
                CHECK_EQUAL(ranges.begin_withdrawal(range.address, RangeKind::kRegistered), is_there);
                if (is_there) found->second.is_withdrawn = true;
                break;
            }
            default:
                for (auto each = model.ranges.begin(); each != model.ranges.end();) {
                    CHECK_EQUAL(ranges.holders(each->first).size(), each->second.holders.size());
                    if (each->second.is_withdrawn && each->second.holders.empty()) {
                        ranges.end_withdrawal(each->first);
                        each = model.ranges.erase(each);
                    } else {
                        ++each;
                    }
                }
        }
        CHECK_EQUAL(ranges.size(), model.ranges.size());
        CHECK_EQUAL(ranges.hold_count(), holds.size());
        CHECK_EQUAL(ranges.covers(range), model.may_touch(range));
        ranges.check_invariants();
    }
}

// What a plan says moves where, byte by byte.
std::map<std::uint64_t, std::uint64_t> moves_of(const std::vector<MemoryRange>& remote,
                                                const std::vector<MemoryRange>& local) {
    std::vector<std::uint64_t> to;
    std::vector<std::uint64_t> from;
    for (const auto& range : remote) {
        for (std::uint64_t i = 0; i < range.length; ++i) to.push_back(range.address + i);
    }
    for (const auto& range : local) {
        for (std::uint64_t i = 0; i < range.length; ++i) from.push_back(range.address + i);
    }
    CHECK_EQUAL(to.size(), from.size());
    std::map<std::uint64_t, std::uint64_t> moves;
    for (std::size_t i = 0; i < to.size(); ++i) moves[to[i]] = from[i];
    return moves;
}

}  // namespace

TEST(ranges_do_what_a_plain_model_does) {
    for (std::uint64_t seed = 0; seed < 200; ++seed) run_beside_model(seed);
}

TEST(ranges_at_either_end_of_the_address_space) {
    Ranges ranges;
    CHECK(ranges.add({0, 8}, RangeKind::kRegistered) == Status::kInvalidParams);
    CHECK(ranges.add({kTop - 3, 8}, RangeKind::kRegistered) == Status::kInvalidParams);
    CHECK(ranges.add({kTop - 8, 8}, RangeKind::kRegistered) == Status::kOk);
    std::size_t refused = 0;
    CHECK(ranges.hold(std::vector<MemoryRange>{{kTop - 8, 8}}, refused).has_value());
    CHECK(!ranges.hold(std::vector<MemoryRange>{{kTop - 8, 9}}, refused).has_value());
    CHECK(!ranges.hold(std::vector<MemoryRange>{{kTop - 8, kTop}}, refused).has_value());
    CHECK(!ranges.hold(std::vector<MemoryRange>{{kTop, 1}}, refused).has_value());
}

TEST(no_more_ranges_than_the_bound) {
    Ranges ranges;
    for (std::uint64_t i = 1; i <= transfer::kRangesMax; ++i) {
        CHECK(ranges.add({i * 2, 1}, RangeKind::kRegistered) == Status::kOk);
    }
    CHECK(ranges.add({1, 1}, RangeKind::kRegistered) == Status::kBusy);
    CHECK(ranges.begin_withdrawal(2, RangeKind::kRegistered));
    ranges.end_withdrawal(2);
    CHECK(ranges.add({1, 1}, RangeKind::kRegistered) == Status::kOk);
}

TEST(own_memory_need_not_be_registered_but_not_while_it_is_withdrawn) {
    Ranges ranges;
    std::size_t refused = 0;
    CHECK(ranges.add({100, 10}, RangeKind::kRegistered) == Status::kOk);
    const auto hold = ranges.hold_registered(std::vector<MemoryRange>{{50, 10}, {95, 10}}, refused);
    CHECK(hold.has_value());
    CHECK(ranges.is_held(100));
    CHECK(ranges.begin_withdrawal(100, RangeKind::kRegistered));
    CHECK(!ranges.hold_registered(std::vector<MemoryRange>{{50, 10}, {109, 1}}, refused).has_value());
    CHECK_EQUAL(refused, 1u);
    CHECK(ranges.hold_registered(std::vector<MemoryRange>{{110, 1}, {99, 1}}, refused).has_value());
}

TEST(a_plan_moves_every_byte_once_and_where_it_belongs) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        Chance chance(seed);
        std::vector<Item> items;
        std::map<std::uint64_t, std::uint64_t> expected;
        std::uint64_t remote = 1'000'000;
        for (std::size_t i = 0; i < 50; ++i) {
            const std::uint64_t length = chance.below(4) == 0 ? 0 : chance.below(100);
            if (chance.below(2) == 0) remote += chance.below(50);
            const std::uint64_t local = chance.below(100'000);
            for (std::uint64_t j = 0; j < length; ++j) expected[remote + j] = local + j;
            items.push_back({local, remote, length});
            remote += length;
        }
        Plan plan(items, 2);
        CHECK(plan.is_sound());
        CHECK_EQUAL(plan.total_bytes(), expected.size());
        std::map<std::uint64_t, std::uint64_t> moved;
        while (!plan.done()) {
            const Portion portion = plan.next();
            CHECK(portion.bytes > 0);
            moved.merge(moves_of(portion.remote, portion.local));
        }
        CHECK(moved == expected);
    }
}

TEST(a_long_item_is_cut_between_the_streams_and_neighbours_are_joined) {
    const std::uint64_t mib = 1 << 20;
    const std::vector<Item> one{{1'000, 2'000, 64 * mib}};
    Plan cut(one, 2);
    std::uint64_t at = 0;
    for (; !cut.done(); at += 16 * mib) {
        const Portion portion = cut.next();
        CHECK(portion.remote == std::vector<MemoryRange>({{2'000 + at, 16 * mib}}));
        CHECK(portion.local == std::vector<MemoryRange>({{1'000 + at, 16 * mib}}));
    }
    CHECK_EQUAL(at, 64 * mib);

    std::vector<Item> blocks;
    for (std::uint64_t i = 0; i < 40'000; ++i) blocks.push_back({5'000 + i * 32, 9'000 + i * 16, 16});
    Plan joined(blocks, 1);
    const Portion portion = joined.next();
    CHECK(joined.done());
    CHECK(portion.remote == std::vector<MemoryRange>({{9'000, 640'000}}));
    CHECK_EQUAL(portion.local.size(), 40'000u);
}

TEST(no_request_has_more_ranges_than_a_frame_takes) {
    std::vector<Item> strays;
    for (std::uint64_t i = 0; i < 40'000; ++i) strays.push_back({5'000 + i * 32, 9'000 + i * 32, 16});
    Plan plan(strays, 2);
    std::size_t ranges = 0;
    while (!plan.done()) {
        const Portion portion = plan.next();
        CHECK(portion.remote.size() <= wire::kBatchKeysMax);
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode_transfer(portion.remote, writer);
        const auto parsed = wire::parse_transfer(body);
        CHECK(parsed.has_value());
        CHECK_EQUAL(parsed->payload_bytes, portion.bytes);
        ranges += portion.remote.size();
    }
    CHECK_EQUAL(ranges, strays.size());
}

TEST(lengths_that_no_memory_has_are_not_planned) {
    for (const Item& item : {Item{1, kTop, 2}, Item{kTop, 1, 2}, Item{1, 1, kTop}}) {
        const std::vector<Item> items{{1, 1, 1}, item};
        Plan plan(items, 2);
        CHECK(!plan.is_sound());
        CHECK(plan.done());
    }
    const std::vector<Item> sum{{1, 1, wire::kValueBytesMax}, {1, 1, 1}};
    CHECK(!Plan(sum, 2).is_sound());
}

TEST(a_withdrawal_returns_when_the_last_hold_is_gone) {
    const auto registry = std::make_shared<Registry>();
    std::vector<std::uint8_t> memory(4096);
    const MemoryRange range{reinterpret_cast<std::uint64_t>(memory.data()), memory.size()};
    std::string why;
    CHECK(registry->add(range, RangeKind::kRegistered, why) == Status::kOk);
    std::atomic<bool> is_released = false;
    std::atomic<int> cut_off = 0;
    auto hold = registry->hold(std::vector{range}, [&] { ++cut_off; }, why);
    CHECK(hold != nullptr);
    std::thread withdrawing([&] {
        std::string reason;
        CHECK(registry->withdraw(range.address, RangeKind::kRegistered, reason) == Status::kOk);
        CHECK(is_released);
    });
    // Nothing new may touch it from the moment on that the withdrawal begins.
    while (auto other = registry->hold(std::vector{range}, [] {}, why)) other.reset();
    is_released = true;
    hold.reset();
    withdrawing.join();
    CHECK_EQUAL(registry->size(), 0u);
    CHECK(cut_off <= 1);
    CHECK(registry->withdraw(range.address, RangeKind::kRegistered, why) == Status::kSegmentNotFound);
}

TEST(who_does_not_let_go_is_cut_off) {
    const auto registry = std::make_shared<Registry>();
    std::vector<std::uint8_t> memory(4096);
    const MemoryRange range{reinterpret_cast<std::uint64_t>(memory.data()), memory.size()};
    std::string why;
    CHECK(registry->add(range, RangeKind::kManaged, why) == Status::kOk);
    Registry::HoldPtr hold;
    hold = registry->hold(std::vector{range}, [&] { hold.reset(); }, why);
    CHECK(registry->withdraw(range.address, RangeKind::kManaged, why) == Status::kOk);
    CHECK(hold == nullptr);
}

int main(int argc, char** argv) { return check::run(argc, argv); }
