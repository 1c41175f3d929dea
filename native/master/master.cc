#include "master/master.h"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <span>
#include <stdexcept>
#include <vector>

#include "net/event_loop.h"
#include "net/random.h"

namespace mooncake::master {

namespace {

// Between two slices of one tick's work: a batch of the lane gets the lock in between.
constexpr std::uint64_t kSlicePauseMs = 1;

// Memory of tables that is in use to its last byte and may become large pages. Of the process, as its memory
// is: whichever master has time does it. A table may have given the memory back by then; that does no harm,
// whatever is there keeps its content.
struct ToCollapse {
    std::mutex mutex;  // guards the list; nothing is taken inside it
    std::vector<std::span<std::byte>> pieces;
};
constexpr std::size_t kPiecesToCollapseMax = 4'096;
// Between two readings of the clock; each takes about a millisecond and makes who reads there wait so long.
constexpr std::size_t kCollapsedAReadingMax = 8;

ToCollapse& to_collapse() {
    static ToCollapse waiting;
    return waiting;
}

// Under the state lock. What is too much stays as it is: slower, no more.
void wait_to_be_collapsed(void* memory, std::size_t bytes) {
    ToCollapse& waiting = to_collapse();
    const std::lock_guard guard(waiting.mutex);
    if (bytes < metadata::kLargePageBytes || waiting.pieces.size() >= kPiecesToCollapseMax) return;
    waiting.pieces.emplace_back(static_cast<std::byte*>(memory), bytes);
}

void collapse_some() {
    constexpr int kMadviseCollapse = 25;  // MADV_COLLAPSE, since Linux 6.1
    for (std::size_t done = 0; done < kCollapsedAReadingMax; ++done) {
        std::byte* page = nullptr;
        {
            ToCollapse& waiting = to_collapse();
            const std::lock_guard guard(waiting.mutex);
            if (waiting.pieces.empty()) return;
            auto& piece = waiting.pieces.back();
            page = piece.data();
            piece = piece.subspan(metadata::kLargePageBytes);
            if (piece.size() < metadata::kLargePageBytes) waiting.pieces.pop_back();
        }
        // Older kernels do it in their own time, where they may; if none can, pages stay small.
        if (::madvise(page, metadata::kLargePageBytes, kMadviseCollapse) != 0 && errno == EINVAL) {
            ::madvise(page, metadata::kLargePageBytes, MADV_HUGEPAGE);
        }
    }
}

MasterOptions with_own_parts(MasterOptions options) {
    if (options.uuid == wire::Uuid{}) options.uuid = net::random_uuid();
    if (options.seed == 0) options.seed = net::random_seed();
    options.metadata.prefer_large_pages = wait_to_be_collapsed;
    return options;
}

// Whatever it says, it speaks.
metadata::ProbeResult as_seen(net::ProbeResult result) {
    switch (result) {
        case net::ProbeResult::kWelcomed:
        case net::ProbeResult::kDeclined:
            return metadata::ProbeResult::kAnswered;
        case net::ProbeResult::kRefused:
            return metadata::ProbeResult::kRefused;
        case net::ProbeResult::kFailed:
            break;
    }
    return metadata::ProbeResult::kFailed;
}

}  // namespace

Master::Master(const MasterOptions& options)
    : options_(with_own_parts(options)),
      clock_(options_.clock_step_max_ms),
      driver_(std::make_shared<StateDriver>(options_.metadata, options_.driver, options_.epoch, options_.uuid,
                                            options_.seed, clock_)) {}

Master::~Master() { stop(); }

void Master::start() {
    const std::lock_guard guard(running_mutex_);
    if (lane_ || is_stopped_) throw std::logic_error("a master starts once");
    clock_.advance(net::monotonic_ms());
    wire::Hello hello;
    hello.role = wire::Role::kData;
    hello.process = options_.uuid;
    hello.software = options_.software;
    prober_ = std::make_unique<net::Prober>(hello);
    driver_->set_probe([this](wire::SessionId node, const std::string& endpoint) {
        prober_->probe(endpoint, [this, node](const net::ProbeAnswer& answer) {
            driver_->probe_ended(node, as_seen(answer.result));
        });
    });
    if (options_.dial_back) dial_nodes_back();
    LaneOptions lane;
    lane.host = options_.lane_host;
    lane.port = options_.lane_port;
    lane.threads = options_.lane_threads;
    lane.software = options_.software;
    lane.master = options_.uuid;
    lane_ = std::make_unique<LaneServer>(driver_, lane);
    time_ = std::thread([this] { let_time_pass(); });
}

void Master::dial_nodes_back() {
    dial_back_ = std::make_unique<DialBack>(
        [this](const std::string& endpoint, DialBack::Probed probed) {
            prober_->probe(endpoint, [probed = std::move(probed)](const net::ProbeAnswer& answer) {
                const bool was_welcomed = answer.result == net::ProbeResult::kWelcomed;
                probed(was_welcomed ? std::optional(answer.process) : std::nullopt, answer.why);
            });
        },
        clock_);
    driver_->set_dial_back([this](const wire::Mount& mount, StateDriver::DialledBack ended) {
        dial_back_->check(mount, std::move(ended));
    });
}

void Master::stop() {
    const std::lock_guard guard(running_mutex_);
    if (is_stopped_) return;
    is_stopped_ = true;
    if (lane_) lane_->stop();
    {
        const std::lock_guard time_guard(time_mutex_);
        is_time_over_ = true;
    }
    time_over_.notify_all();
    if (time_.joinable()) time_.join();
    if (dial_back_) dial_back_->stop();
    if (prober_) prober_->stop();
    driver_->stop();
}

std::uint16_t Master::lane_port() const {
    const std::lock_guard guard(running_mutex_);
    return lane_ ? lane_->port() : std::uint16_t{0};
}

void Master::submit(wire::Verb verb, wire::Bytes body, StateDriver::Completion done) {
    driver_->submit(verb, body, nullptr, std::move(done));
}

std::vector<std::pair<std::string, std::uint64_t>> Master::stats() const {
    auto stats = driver_->stats();
    const std::lock_guard guard(running_mutex_);
    if (!lane_) return stats;
    for (auto& stat : lane_->stats()) stats.push_back(std::move(stat));
    return stats;
}

std::vector<RequestMetrics::Histogram> Master::request_histograms() const {
    return driver_->metrics().histograms();
}

// The thread that reads the clock and runs ticks. Nothing that may wait runs here: answers to parked calls
// are sends, which queue.
void Master::let_time_pass() {
    pthread_setname_np(pthread_self(), "mc-time");
    std::uint64_t next_reading_ms = 0;
    for (;;) {
        const std::uint64_t reading_ms = net::monotonic_ms();
        if (reading_ms >= next_reading_ms) {
            clock_.advance(reading_ms);
            next_reading_ms = reading_ms + kClockPeriodMs;
            collapse_some();
        }
        const bool is_idle = driver_->tick();
        const std::uint64_t after_ms = net::monotonic_ms();
        const std::uint64_t rest_ms = next_reading_ms - std::min(next_reading_ms, after_ms);
        if (!sleep_ms(is_idle ? rest_ms : std::min(rest_ms, kSlicePauseMs))) return;
    }
}

// False: time is over.
bool Master::sleep_ms(std::uint64_t delay_ms) {
    std::unique_lock guard(time_mutex_);
    return !time_over_.wait_for(guard, std::chrono::milliseconds(delay_ms), [this] { return is_time_over_; });
}

}  // namespace mooncake::master
