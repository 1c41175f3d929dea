#include "plan.h"

#include <algorithm>
#include <array>
#include <initializer_list>

namespace simulation {

namespace {

// As often as they are named.
constexpr std::array kMixes{Mix::kCalm,    Mix::kNetwork, Mix::kNetwork, Mix::kCrashes, Mix::kCrashes,
                            Mix::kMasters, Mix::kPauses,  Mix::kCuts,    Mix::kStorm,   Mix::kStorm};
constexpr std::uint64_t kFaultInUseIn10000 = 6'000;

std::uint64_t rate(Random& random, std::uint64_t rate_max) {
    return random.chance(kFaultInUseIn10000) ? random.between(1, rate_max) : 0;
}

void draw_faults(Random& random, Plan& plan) {
    const auto has = [&](std::initializer_list<Mix> mixes) {
        return plan.mix == Mix::kStorm || std::find(mixes.begin(), mixes.end(), plan.mix) != mixes.end();
    };
    if (has({Mix::kNetwork, Mix::kCrashes, Mix::kMasters, Mix::kPauses, Mix::kCuts})) {
        plan.resets = rate(random, 150);
        plan.delays = rate(random, 400);
        plan.repeats = rate(random, 1'000);
    }
    if (has({Mix::kNetwork, Mix::kCrashes})) {
        plan.node_silences = rate(random, 700);
        plan.slow_nodes = rate(random, 700);
    }
    if (has({Mix::kCrashes, Mix::kMasters})) {
        plan.client_crashes = rate(random, 700);
        plan.node_crashes = rate(random, plan.mix == Mix::kMasters ? 200 : 700);
        plan.master_crashes = rate(random, plan.mix == Mix::kMasters ? 900 : 300);
    }
    if (has({Mix::kPauses, Mix::kMasters})) {
        plan.client_pauses = rate(random, 600);
        plan.node_pauses = rate(random, 600);
        plan.master_pauses = rate(random, 400);
    }
    if (has({Mix::kCuts, Mix::kMasters})) plan.partitions = rate(random, 900);
    if (has({Mix::kMasters})) plan.takeovers = rate(random, 500);
}

}  // namespace

std::vector<Ms> Plan::deadlines() const {
    const auto& metadata = master.metadata;
    // The client's own: kWakeMs, kStallMs, kLaneAnswerMs, and what it waits between two probes.
    return {metadata.client_ttl_ms,
            metadata.session_grace_ms,
            metadata.lease_ttl_ms,
            metadata.exists_hold_ms,
            metadata.put_start_discard_ms,
            metadata.heartbeat_interval_ms,
            master.driver.alloc_wait_ms,
            master.driver.remove_confirm_timeout_ms,
            mooncake::master::kClockPeriodMs,
            250,
            1'000,
            1'500,
            3'000};
}

Plan draw_plan(Random& random) {
    Plan plan;
    plan.nodes = random.between(2, 4);
    plan.clients = random.between(2, 4);
    plan.callers = random.between(2, 4);
    plan.keys = random.between(12, 36);
    plan.segments_a_node = random.chance(2'500) ? 2 : 1;
    for (std::size_t i = 0; i < plan.nodes; ++i) {
        plan.capacities.push_back(random.between(2, 12) * 64 * 1024 + random.below(3) * 64);
    }
    if (random.chance(800)) {  // large values: several chunks and stripes
        for (auto& capacity : plan.capacities) capacity += 12u << 20;
        plan.wide_value_in_10000 = 1'000;
    }
    if (random.chance(2'000)) plan.value_bytes_max = 400;  // many small ones: room for all
    // Reads that last: what they read is replaced meanwhile, and its range wanted by others.
    const bool reads_last = random.chance(3'000);
    if (reads_last) {
        plan.value_sizes = {70'000, 35'000};
        plan.window_bytes = {4'096, 16'384};
        plan.keys = random.between(6, 12);
    }

    plan.checksums = random.chance(6'000);
    plan.location_cache_max = random.chance(8'000) ? 256 : 0;

    auto& metadata = plan.master.metadata;
    metadata.client_ttl_ms = 2'000;
    metadata.session_grace_ms = 200;
    metadata.heartbeat_interval_ms = 200;
    metadata.lease_ttl_ms = random.between(1, 4) * 250;
    metadata.exists_hold_ms = 300;
    metadata.put_start_discard_ms = 800;
    metadata.put_start_release_ms = 2'500;
    metadata.soft_pin_ms = 1'500;
    metadata.keys_a_step_max = static_cast<std::uint32_t>(random.between(2, 1'000));
    metadata.replay_window = 64;
    metadata.allocation = random.pick(std::vector{mooncake::metadata::AllocationStrategy::kRandom,
                                                  mooncake::metadata::AllocationStrategy::kFreeRatioFirst,
                                                  mooncake::metadata::AllocationStrategy::kLocalFirst});
    if (random.chance(1'500)) metadata.max_keys = plan.keys / 2;
    plan.master.driver.remove_confirm_timeout_ms = 400;
    plan.master.seed = random.next() | 1;
    plan.master.lane_threads = random.between(1, 2);

    plan.latency_max_ms = random.between(0, 3);
    plan.bytes_a_ms = reads_last ? random.between(100, 500) : random.between(1, 50) * 1'000;
    plan.mix = random.pick(kMixes);
    plan.finds_lane = random.chance(5'000);
    plan.master_addresses = plan.finds_lane && random.chance(7'000) ? 2 : 1;
    draw_faults(random, plan);
    // A master that starts believes what its nodes hold. Not drawn: the other seeds stay as they are.
    if (plan.master_crashes == 0 && plan.takeovers == 0 && plan.master.seed % 7 == 0) {
        plan.wrong_records = 200 + plan.master.seed / 7 % 600;
    }
    return plan;
}

}  // namespace simulation
