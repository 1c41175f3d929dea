#include "master/dial_back.h"

#include <map>
#include <utility>
#include <vector>

namespace mooncake::master {

namespace {

using wire::Status;

// Of a refusal: a node has one line of log for it.
constexpr std::size_t kWhyBytesMax = 1'000;

}  // namespace

// One mount. Whoever probes it touches it, nobody else.
struct DialBack::Check {
    struct Segment {
        std::string name;
        std::optional<wire::Uuid> process;  // the one that must answer; none: any
        std::vector<std::string> endpoints;
        bool is_led_to_by(const wire::Uuid& found) const { return !process || *process == found; }
    };
    std::vector<Segment> segments;
    std::size_t segment = 0;  // the one being asked for, and which of its endpoints
    std::size_t endpoint = 0;
    std::map<std::string, wire::Uuid, std::less<>> welcomed;  // who answered there
    std::string failures;                                     // of this segment's endpoints
    std::uint64_t begin_until_ms = 0;
    Ended ended;
};

DialBack::DialBack(Probe probe, const BoundedClock& clock) : probe_(std::move(probe)), clock_(clock) {}

DialBack::~DialBack() = default;

void DialBack::check(const wire::Mount& mount, Ended ended) {
    auto check = std::make_shared<Check>();
    for (const auto& segment : mount.segments) {
        // The incarnation of a memory segment is its process; another tier's may outlive one.
        const bool is_process = segment.tier == wire::Tier::kDram;
        check->segments.push_back({std::string(segment.name),
                                   is_process ? std::optional(segment.incarnation) : std::nullopt,
                                   {segment.endpoints.begin(), segment.endpoints.end()}});
    }
    check->begin_until_ms = clock_.now_ms() + kDialBackBeginMs;
    check->ended = std::move(ended);
    Status refusal = Status::kOk;
    {
        const std::lock_guard guard(mutex_);
        if (is_stopped_) {
            refusal = Status::kClosed;
        } else if (running_ < kDialBacksMax) {
            ++running_;
        } else if (waiting_.size() < kDialBacksWaitingMax) {
            waiting_.push_back(std::move(check));
            return;
        } else {
            refusal = Status::kBusy;
        }
    }
    if (wire::ok(refusal)) return go_on(check);
    check->ended(refusal, refusal == Status::kBusy
                              ? "too many mounts wait for their endpoints to be dialled back"
                              : "the master is stopping");
}

void DialBack::stop() {
    std::deque<CheckPtr> waiting;
    {
        const std::lock_guard guard(mutex_);
        is_stopped_ = true;
        waiting.swap(waiting_);
    }
    for (const auto& check : waiting) check->ended(Status::kClosed, "the master is stopping");
}

// Finds what is to be probed next.
void DialBack::go_on(const CheckPtr& check) {
    while (check->segment < check->segments.size()) {
        const Check::Segment& segment = check->segments[check->segment];
        // One that names no endpoint is for the state machine to judge.
        bool is_settled = segment.endpoints.empty();
        for (const auto& endpoint : segment.endpoints) {
            const auto found = check->welcomed.find(endpoint);
            is_settled |= found != check->welcomed.end() && segment.is_led_to_by(found->second);
        }
        if (is_settled) {
            ++check->segment;
            check->endpoint = 0;
            check->failures.clear();
            continue;
        }
        if (check->endpoint == segment.endpoints.size()) {
            return end(check, Status::kUnreachable,
                       "the master could not dial back what segment " + segment.name +
                           " advertises: " + check->failures);
        }
        if (clock_.now_ms() > check->begin_until_ms) {
            return end(check, Status::kBusy,
                       "the master did not get to dial back " + segment.endpoints[check->endpoint] +
                           " in time: it is busy with others that do not answer");
        }
        return probe_(segment.endpoints[check->endpoint],
                      [this, check](const std::optional<wire::Uuid>& process, const std::string& why) {
                          probed(check, process, why);
                      });
    }
    end(check, Status::kOk, "");
}

void DialBack::probed(const CheckPtr& check, const std::optional<wire::Uuid>& process,
                      const std::string& why) {
    const Check::Segment& segment = check->segments[check->segment];
    const std::string& endpoint = segment.endpoints[check->endpoint++];
    if (process) check->welcomed.insert_or_assign(endpoint, *process);
    if (!process || !segment.is_led_to_by(*process)) {
        check->failures += (check->failures.empty() ? "" : "; ") + endpoint + " (" +
                           (process ? "another process answers there" : why) + ")";
    }
    go_on(check);
}

// Its place goes to the next that waits.
void DialBack::end(const CheckPtr& check, Status status, const std::string& why) {
    CheckPtr next;
    bool is_stopped = false;
    {
        const std::lock_guard guard(mutex_);
        is_stopped = is_stopped_;
        if (waiting_.empty()) {
            --running_;
        } else {
            next = std::move(waiting_.front());
            waiting_.pop_front();
        }
    }
    if (is_stopped && status == Status::kUnreachable) {
        check->ended(Status::kClosed, "the master is stopping");  // and its probes with it
    } else {
        check->ended(status, why.substr(0, kWhyBytesMax));
    }
    if (next) go_on(next);
}

}  // namespace mooncake::master
