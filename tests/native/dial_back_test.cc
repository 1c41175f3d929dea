// Mounts whose endpoints are dialled back first: what is probed, how many at once, what becomes of the mount.
#include "master/dial_back.h"

#include <deque>

#include "master_world.h"

namespace {

using namespace master_world;
using master::DialBack;

struct Probe {
    std::string endpoint;
    DialBack::Probed probed;
};

struct Segment {
    std::string name;
    std::vector<std::string> endpoints;
    wire::Tier tier = wire::Tier::kDram;
};

struct Ended {
    Status status;
    std::string why;
};
using EndedPtr = std::shared_ptr<std::optional<Ended>>;

constexpr wire::Uuid kNode{7};
constexpr wire::Uuid kAnother{8};

// Probes are answered when the test says so.
struct Prober {
    Prober()
        : clock(500),
          dial_back([this](const std::string& endpoint,
                           DialBack::Probed probed) { probes.push_back({endpoint, std::move(probed)}); },
                    clock) {
        clock.advance(reading_ms);
    }
    EndedPtr check(const std::vector<Segment>& segments) {
        wire::Mount mount;
        for (const auto& segment : segments) {
            auto& description = mount.segments.emplace_back();
            description.name = segment.name;
            description.tier = segment.tier;
            description.incarnation = kNode;
            description.endpoints.assign(segment.endpoints.begin(), segment.endpoints.end());
        }
        auto ended = std::make_shared<std::optional<Ended>>();
        dial_back.check(mount, [ended](Status status, const std::string& why) {
            CHECK(!*ended);
            *ended = Ended{status, why};
        });
        return ended;
    }
    void answer(const std::optional<wire::Uuid>& process, const std::string& why) {
        CHECK(!probes.empty());
        const Probe probe = std::move(probes.front());
        probes.pop_front();
        probe.probed(process, why);
    }
    void welcome() { answer(kNode, ""); }
    void fail(const std::string& why) { answer(std::nullopt, why); }
    void pass(std::uint64_t ms) {
        for (; ms > 0; ms -= std::min<std::uint64_t>(ms, 500)) {
            clock.advance(reading_ms += std::min<std::uint64_t>(ms, 500));
        }
    }

    std::uint64_t reading_ms = 1'000'000;
    BoundedClock clock;
    std::deque<Probe> probes;
    DialBack dial_back;
};

bool has(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

TEST(one_endpoint_of_each_segment_must_answer_and_each_is_asked_once) {
    Prober w;
    const auto ended =
        w.check({{"a", {"tcp://x:1", "tcp://y:1"}}, {"b", {"tcp://y:1"}}, {"c", {"tcp://z:1"}}});
    CHECK_EQUAL(w.probes.size(), std::size_t{1});
    w.fail("x is away");
    CHECK_EQUAL(w.probes.front().endpoint, std::string("tcp://y:1"));
    w.welcome();
    CHECK_EQUAL(w.probes.front().endpoint, std::string("tcp://z:1"));
    CHECK(!*ended);
    w.welcome();
    CHECK_EQUAL((*ended)->status, Status::kOk);
    CHECK(w.probes.empty());
}

TEST(a_segment_that_answers_nowhere_is_refused_naming_it_its_endpoints_and_why) {
    Prober w;
    const auto ended =
        w.check({{"a", {"tcp://x:1"}}, {"b", {"tcp://y:1", "tcp://y:2"}}, {"c", {"tcp://z:1"}}});
    w.welcome();
    w.fail("refused");
    w.fail("no such name");
    CHECK_EQUAL((*ended)->status, Status::kUnreachable);
    for (const auto* part : {"segment b", "tcp://y:1 (refused)", "tcp://y:2 (no such name)"}) {
        CHECK(has((*ended)->why, part));
    }
    CHECK(!has((*ended)->why, "x:1"));
    CHECK(w.probes.empty());
}

TEST(an_address_where_another_process_answers_is_not_the_nodes) {
    Prober w;
    const auto ended = w.check({{"a", {"tcp://x:1", "tcp://y:1"}}, {"b", {"tcp://x:1"}}});
    w.answer(kAnother, "");
    w.welcome();
    CHECK_EQUAL(w.probes.front().endpoint, std::string("tcp://x:1"));
    w.answer(kAnother, "");
    CHECK_EQUAL((*ended)->status, Status::kUnreachable);
    CHECK(has((*ended)->why, "segment b"));
    CHECK(has((*ended)->why, "tcp://x:1 (another process answers there)"));
}

TEST(a_segment_that_may_outlive_its_process_takes_any_that_answers) {
    Prober w;
    const auto ended = w.check({{"a", {"tcp://x:1"}, wire::Tier::kSsd}});
    w.answer(kAnother, "");
    CHECK_EQUAL((*ended)->status, Status::kOk);
}

TEST(what_ends_with_the_master_is_closed_and_not_unreachable) {
    Prober w;
    const auto ended = w.check({{"a", {"tcp://x:1"}}});
    w.dial_back.stop();
    w.fail("the event loop has stopped");
    CHECK_EQUAL((*ended)->status, Status::kClosed);
}

TEST(a_segment_without_endpoints_is_left_to_the_state_machine) {
    Prober w;
    CHECK_EQUAL((*w.check({{"a", {}}}))->status, Status::kOk);
}

TEST(mounts_beyond_the_bound_wait_and_too_many_are_told_so) {
    Prober w;
    std::vector<EndedPtr> all;
    for (std::size_t i = 0; i < master::kDialBacksMax + master::kDialBacksWaitingMax; ++i) {
        all.push_back(w.check({{"a", {"tcp://x:" + std::to_string(i)}}}));
    }
    CHECK_EQUAL(w.probes.size(), master::kDialBacksMax);
    CHECK_EQUAL((*w.check({{"a", {"tcp://y:1"}}}))->status, Status::kBusy);
    while (!w.probes.empty()) {
        CHECK(w.probes.size() <= master::kDialBacksMax);
        w.welcome();
    }
    for (const auto& ended : all) CHECK_EQUAL((*ended)->status, Status::kOk);
    // All places are free again.
    for (std::size_t i = 0; i < master::kDialBacksMax; ++i) w.check({{"a", {"tcp://x:1"}}});
    CHECK_EQUAL(w.probes.size(), master::kDialBacksMax);
}

TEST(one_that_waited_too_long_is_busy_and_not_unreachable) {
    Prober w;
    for (std::size_t i = 0; i < master::kDialBacksMax; ++i) w.check({{"a", {"tcp://x:1"}}});
    const auto late = w.check({{"a", {"tcp://late:1"}}});
    const auto later = w.check({{"a", {"tcp://late:2"}}});
    w.pass(master::kDialBackBeginMs + 1);
    w.fail("no answer");
    CHECK_EQUAL((*late)->status, Status::kBusy);
    CHECK(has((*late)->why, "tcp://late:1"));
    CHECK_EQUAL((*later)->status, Status::kBusy);
}

TEST(what_waits_is_answered_when_it_stops) {
    Prober w;
    std::vector<EndedPtr> running;
    for (std::size_t i = 0; i < master::kDialBacksMax; ++i)
        running.push_back(w.check({{"a", {"tcp://x:1"}}}));
    const auto waiting = w.check({{"a", {"tcp://x:1"}}});
    w.dial_back.stop();
    CHECK_EQUAL((*waiting)->status, Status::kClosed);
    CHECK_EQUAL((*w.check({{"a", {"tcp://x:1"}}}))->status, Status::kClosed);
    while (!w.probes.empty()) w.fail("stopped");
    for (const auto& ended : running) CHECK(ended->has_value());
}

// ---- the driver: a mount is held until it is known that its endpoint answers

struct Held {
    Held() : node(wire::Role::kNode), session(world.open_session(2, node.link)) {
        world.driver.set_dial_back([this](const wire::Mount& mount, StateDriver::DialledBack ended) {
            asked.emplace_back(mount.segments.at(0).endpoints.at(0));
            ends.push_back(std::move(ended));
        });
    }
    AnswerPtr mount() { return world.ask_mount(session, 64 * kKiB, node.link); }

    World world;
    Peer node;
    wire::SessionId session;
    std::vector<std::string> asked;
    std::vector<StateDriver::DialledBack> ends;
};

TEST(a_mount_is_carried_out_once_its_endpoint_answered) {
    Held w;
    const auto answer = w.mount();
    CHECK_EQUAL(w.asked.at(0), std::string("tcp://127.0.0.1:1"));
    CHECK(!answer->came());
    CHECK_EQUAL(w.world.stat("segments_mounted_total"), 0u);
    w.ends.at(0)(Status::kOk, "");
    CHECK_EQUAL(*answer->status, Status::kOk);
    CHECK_EQUAL(w.world.stat("segments_mounted_total"), 1u);
    CHECK_EQUAL(w.world.stat("unreachable_mounts_total"), 0u);
}

TEST(a_node_that_is_mounted_and_asks_again_is_not_dialled_again) {
    Held w;
    const auto answer = w.mount();
    w.ends.at(0)(Status::kOk, "");
    w.world.driver.link_closed(w.node.link);
    Peer back(wire::Role::kNode);
    const auto again = w.world.ask_mount(w.session, 64 * kKiB, back.link, 1);
    CHECK_EQUAL(*again->status, Status::kOk);
    CHECK(again->body == answer->body);
    const auto further = w.world.ask_mount(w.session, 64 * kKiB, back.link);
    CHECK(!further->came());
    CHECK_EQUAL(w.asked.size(), std::size_t{2});
}

TEST(a_mount_whose_endpoint_does_not_answer_changes_nothing) {
    Held w;
    const auto answer = w.mount();
    w.ends.at(0)(Status::kUnreachable, "nobody at tcp://127.0.0.1:1");
    CHECK_EQUAL(*answer->status, Status::kUnreachable);
    CHECK_EQUAL(wire::Reader(answer->body).text16(1'000), std::string_view("nobody at tcp://127.0.0.1:1"));
    CHECK_EQUAL(w.world.stat("segments_mounted_total"), 0u);
    CHECK_EQUAL(w.world.stat("unreachable_mounts_total"), 1u);
    const auto again = w.mount();
    w.ends.at(1)(Status::kOk, "");
    CHECK_EQUAL(*again->status, Status::kOk);
}

TEST(a_mount_whose_connection_ended_meanwhile_is_not_carried_out) {
    Held w;
    const auto answer = w.mount();
    w.world.driver.link_closed(w.node.link);
    w.ends.at(0)(Status::kOk, "");
    CHECK_EQUAL(*answer->status, Status::kClosed);
    CHECK_EQUAL(w.world.stat("segments_mounted_total"), 0u);
}

TEST(a_mount_that_is_held_when_the_master_stops_is_answered) {
    Held w;
    const auto answer = w.mount();
    w.world.driver.stop();
    w.ends.at(0)(Status::kOk, "");
    CHECK_EQUAL(*answer->status, Status::kClosed);
}

TEST(a_mount_that_does_not_parse_is_malformed_without_a_probe) {
    Held w;
    const auto answer = w.world.ask(Verb::kMount, Buffer{1, 2, 3}, w.node.link);
    CHECK_EQUAL(*answer->status, Status::kMalformed);
    CHECK(w.asked.empty());
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
