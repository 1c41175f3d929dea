#include "inside.h"

#include <time.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "metadata/metadata.h"
#include "node/core/range_allocator.h"

namespace mooncake::bench {

namespace {

constexpr std::uint64_t kValueBytes = 64u << 10;

std::uint64_t thread_cpu_ns() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

// A state machine with one session that is client and node.
class World {
  public:
    World() : metadata_(options(), 1, {}, 42) {
        wire::OpenSession open;
        open.name = "lane_load";
        const wire::Buffer opened = ask(wire::Verb::kOpenSession, [&](auto& w) { wire::encode(open, w); });
        session_ = wire::parse_open_session_reply(opened)->session;
        wire::SegmentDescription segment;
        segment.capacity_bytes = std::uint64_t{1} << 49;
        segment.name = "segment";
        segment.endpoints = {"tcp://127.0.0.1:1"};
        ask(wire::Verb::kMount, [&](auto& w) { wire::encode_mount(prefix(), {}, {&segment, 1}, w); });
    }

    // The CPU time of both steps.
    std::uint64_t put(std::uint64_t number) {
        const Key key(number);
        const std::string_view text = key.text();
        const std::uint64_t parent = 0;
        const std::uint64_t begun = thread_cpu_ns();
        const wire::Buffer granted = ask(wire::Verb::kPutStart, [&](auto& w) {
            wire::encode_put_start(prefix(), {}, {}, {}, {&text, 1}, {&kValueBytes, 1}, {&parent, 1}, w);
        });
        const auto grant = wire::Places<wire::GrantRecord>::parse(granted);
        if (!grant || !wire::ok(grant->record(0).status)) fail("no grant");
        const wire::PutEndItem item{grant->record(0).put_id, 1, 0};
        const wire::ReplicaResult result{grant->place(0).replica, wire::Status::kOk, 0, 0};
        ask(wire::Verb::kPutEnd,
            [&](auto& w) { wire::encode_put_end(prefix(), {&item, 1}, {&result, 1}, w); });
        return thread_cpu_ns() - begun;
    }

  private:
    static metadata::Options options() {
        metadata::Options options;
        options.max_keys = 100'000'000;
        options.max_metadata_bytes = std::uint64_t{64} << 30;
        return options;
    }
    wire::Prefix prefix() { return {session_, ++sequence_, 0, 0}; }

    template <class Encode>
    wire::Buffer ask(wire::Verb verb, Encode&& encode) {
        body_.clear();
        wire::Writer writer(body_);
        encode(writer);
        metadata::Command command = metadata::Metadata::command(verb, body_);
        while (!metadata_.step(command, 1, effects_)) {
        }
        effects_.clear();
        if (!wire::ok(command.status())) fail(std::string("a step: ") + wire::status_name(command.status()));
        return command.take_body();
    }

    metadata::Metadata metadata_;
    metadata::Effects effects_;
    wire::SessionId session_ = 0;
    std::uint64_t sequence_ = 0;
    wire::Buffer body_;
};

}  // namespace

Figures inserts(std::uint64_t keys) {
    World world;
    std::vector<std::uint64_t> slowest;  // the worst few: one may be the machine's
    std::uint64_t sum = 0;
    for (std::uint64_t i = 0; i < keys; ++i) {
        const std::uint64_t ns = world.put(i);
        sum += ns;
        if (slowest.size() == 100 && ns <= slowest.front()) continue;
        slowest.insert(std::lower_bound(slowest.begin(), slowest.end(), ns), ns);
        if (slowest.size() > 100) slowest.erase(slowest.begin());
    }
    return {{"slowest_us", static_cast<double>(slowest.back()) / 1e3},
            {"tenth_slowest_us", static_cast<double>(slowest[slowest.size() - 10]) / 1e3},
            {"mean_us", static_cast<double>(sum) / static_cast<double>(keys) / 1e3}};
}

namespace {

// Blocks in use, of which any may be freed.
class Blocks {
  public:
    Blocks(std::uint64_t least, std::uint64_t most, std::uint64_t segment_bytes)
        : ranges_(segment_bytes),
          sizes_(std::log(least), std::log(most)),
          is_uniform_(least == most),
          least_(least) {}

    // False: no free range fits the block that was drawn.
    bool fill_to(std::uint64_t bytes) {
        for (;;) {
            const std::uint64_t size =
                is_uniform_ ? least_ : static_cast<std::uint64_t>(std::exp(sizes_(random_)));
            if (ranges_.used_bytes() + ranges_.charged_bytes(size) > bytes) return true;
            const auto range = ranges_.allocate(size);
            if (!range) return false;
            held_.push_back(*range);
        }
    }
    void free_any() {
        std::swap(held_[random_() % held_.size()], held_.back());
        ranges_.free(held_.back());
        held_.pop_back();
    }
    std::size_t count() const { return held_.size(); }
    std::uint64_t used_bytes() const { return ranges_.used_bytes(); }

  private:
    node::RangeAllocator ranges_;
    std::vector<node::Range> held_;
    std::mt19937_64 random_{7};
    std::uniform_real_distribution<double> sizes_;
    const bool is_uniform_;
    const std::uint64_t least_;
};

}  // namespace

Figures replacement(std::uint64_t least, std::uint64_t most, std::uint64_t segment_bytes) {
    // Some are freed ahead, as an evictor does, and each block is replaced twice before it gets fuller.
    constexpr std::size_t kFreedAhead = 64;
    constexpr int kFirstPercent = 70;
    Blocks blocks(least, most, segment_bytes);
    const auto used = [&] {
        return static_cast<double>(blocks.used_bytes()) / static_cast<double>(segment_bytes);
    };
    for (int percent = kFirstPercent; percent <= 100; ++percent) {
        const std::uint64_t wanted = segment_bytes / 100 * static_cast<std::uint64_t>(percent);
        if (!blocks.fill_to(wanted)) return {{"utilisation", used()}};
        for (std::size_t replaced = 0; replaced < 2 * blocks.count(); replaced += kFreedAhead) {
            for (std::size_t i = 0; i < std::min(kFreedAhead, blocks.count() / 8); ++i) blocks.free_any();
            if (!blocks.fill_to(wanted)) return {{"utilisation", used()}};
        }
    }
    return {{"utilisation", used()}};
}

}  // namespace mooncake::bench
