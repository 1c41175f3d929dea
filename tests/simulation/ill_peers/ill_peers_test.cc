// A real client, master and node in the simulated world, and one more node that is ill in one particular way:
// how long calls take on its account, by the fake clock, and that it is found again when it is well.
//
// Owns the illnesses. The network is fast and whole; what it does to bytes is the simulation's (run.cc).
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "../kernel.h"
#include "../weather.h"
#include "../world.h"
#include "check.h"
#include "client/client.h"
#include "master/master.h"
#include "net/dial.h"
#include "node/node.h"
#include "wire/data.h"

namespace mooncake::wire {
std::ostream& operator<<(std::ostream& out, Status status) { return out << status_name(status); }
}  // namespace mooncake::wire

namespace simulation {

void violated(const std::string& what) { check::fail(__FILE__, __LINE__, what); }

}  // namespace simulation

namespace {

using namespace simulation;
using namespace mooncake;
using wire::Status;

constexpr std::uint16_t kLanePort = 4'000;
constexpr std::uint16_t kDataPort = 5'000;
// What a call may take on account of an ill node: when it is found out, and from then on.
constexpr Ms kFirstMs = 2'000;
constexpr Ms kLaterMs = 50;
constexpr Ms kHangMs = 120'000;
constexpr std::size_t kKeys = 100;
constexpr std::size_t kValueBytes = 30'000;  // more than one stripe for each node

std::string ip(const Host& host) {
    const auto part = [&](unsigned shift) { return std::to_string((host.address >> shift) & 0xFF); };
    return part(24) + "." + part(16) + "." + part(8) + "." + part(0);
}

// ---- what ails a node (or a master)

enum class Illness {
    kMute,         // takes connections and says nothing
    kGreets,       // answers hello, then nothing
    kHalfHeader,   // of an answer, then silence
    kHalfFrame,    // its head and a part of its body
    kGarbage,      // bytes that are no frame
    kHugeLength,   // a frame that says it is longer than any may be
    kLongLength,   // one of the longest that may be, of which little comes
    kClosesMid,    // half of an answer, then the end
    kClosesAtOnce  // whoever dials
};
constexpr std::array kIllnesses{Illness::kMute,       Illness::kGreets,    Illness::kHalfHeader,
                                Illness::kHalfFrame,  Illness::kGarbage,   Illness::kHugeLength,
                                Illness::kLongLength, Illness::kClosesMid, Illness::kClosesAtOnce};

// A process that listens where a node (or master) did, and is ill.
class IllPeer {
  public:
    // From a fiber of its host.
    IllPeer(World& world, Host& host, std::uint16_t port, Illness illness)
        : world_(world), host_(host), illness_(illness) {
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(port);
        listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        CHECK(::bind(listener_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
        CHECK(::listen(listener_, 64) == 0);
        world.spawn(host, "ill", [this] { serve(); });
    }
    void end() { is_over_ = true; }
    bool has_ended() const { return running_ == 0; }
    std::size_t dials() const { return dials_; }

  private:
    void serve() {
        ++running_;
        while (!is_over_) {
            pollfd entry{listener_, POLLIN, 0};
            if (::poll(&entry, 1, static_cast<int>(net::kLookUpMs)) <= 0) continue;
            const int fd = ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK);
            if (fd < 0) continue;
            ++dials_;
            world_.spawn(host_, "ill", [this, fd] { converse(fd); });
        }
        ::close(listener_);
        --running_;
    }

    bool receive(int fd, std::uint8_t* into, std::size_t count) {
        while (count > 0) {
            pollfd entry{fd, POLLIN, 0};
            if (is_over_) return false;
            if (::poll(&entry, 1, static_cast<int>(net::kLookUpMs)) <= 0) continue;
            const auto n = ::recv(fd, into, count, MSG_DONTWAIT);
            if (n <= 0) return false;
            into += n;
            count -= static_cast<std::size_t>(n);
        }
        return true;
    }

    static void send(int fd, wire::Bytes bytes) { ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL); }

    void converse(int fd) {
        ++running_;
        while (illness_ != Illness::kClosesAtOnce && illness_ != Illness::kMute) {
            wire::Buffer head(wire::kFrameHeaderBytes);
            if (!receive(fd, head.data(), head.size())) break;
            const auto header = wire::parse_frame_header(head);
            CHECK(header.has_value());
            wire::Buffer body(header->body_bytes);
            if (!receive(fd, body.data(), body.size())) break;
            if (header->verb == wire::Verb::kHello) {
                welcome(fd, *header);
            } else if (!answer(fd, *header)) {
                break;
            } else {
                wait_for_end();
            }
        }
        if (illness_ == Illness::kMute) wait_for_end();
        ::close(fd);
        --running_;
    }

    void wait_for_end() const {
        while (!is_over_) world_.sleep(net::kLookUpMs);
    }

    static wire::Buffer reply(const wire::FrameHeader& request, wire::Bytes body) {
        wire::Buffer frame;
        const auto start = wire::begin_frame(frame, wire::reply_header(request, Status::kOk, 1));
        wire::Writer(frame).bytes(body);
        wire::finish_frame(frame, start);
        return frame;
    }

    static void welcome(int fd, const wire::FrameHeader& hello) {
        wire::Welcome welcome;
        welcome.version = wire::kVersionMax;
        wire::Buffer body;
        wire::Writer writer(body);
        wire::encode(welcome, writer);
        send(fd, reply(hello, body));
    }

    // false: the connection ends.
    bool answer(int fd, const wire::FrameHeader& request) const {
        wire::Buffer whole = reply(request, wire::Buffer(1'000, 0));
        const auto with_length = [&](std::uint32_t bytes) {
            std::memcpy(whole.data() + offsetof(wire::FrameHeader, body_bytes), &bytes, sizeof bytes);
        };
        switch (illness_) {
            case Illness::kHalfHeader:
                send(fd, wire::Bytes(whole).first(10));
                return true;
            case Illness::kHalfFrame:
                send(fd, wire::Bytes(whole).first(300));
                return true;
            case Illness::kGarbage:
                send(fd, wire::Buffer(5'000, 0xA5));
                return true;
            case Illness::kHugeLength:
                with_length(0xFFFFFFFF);
                send(fd, whole);
                return true;
            case Illness::kLongLength:
                with_length(wire::kBodyBytesMax);
                send(fd, whole);
                return true;
            case Illness::kClosesMid:
                send(fd, wire::Bytes(whole).first(300));
                return false;
            default:
                return true;
        }
    }

    World& world_;
    Host& host_;
    const Illness illness_;
    int listener_ = -1;
    bool is_over_ = false;
    int running_ = 0;
    std::size_t dials_ = 0;
};

// ---- the cluster

struct Stage {
    explicit Stage(std::size_t node_count = 2, std::uint64_t bytes_in_flight_max = 256u << 20)
        : node_bytes_max(bytes_in_flight_max),
          kernel(world, std::make_unique<FairWeather>(world.random(), 0, 1'000'000), {1u << 20}, faults,
                 [](const Socket&, std::span<const std::uint8_t>) {}),
          master_host(world.add_host("master")),
          client_host(world.add_host("client")) {
        for (std::size_t i = 0; i < node_count; ++i) {
            node_hosts.push_back(&world.add_host("node" + std::to_string(i)));
            nodes.emplace_back();
        }
        on(master_host, [&] { start_master(); });
        for (std::size_t i = 0; i < node_count; ++i) {
            on(*node_hosts[i], [&] { start_node(i); });
        }
        for (std::size_t i = 0; i < kKeys; ++i) {
            keys.push_back("key " + std::to_string(i));
            values.emplace_back(kValueBytes, static_cast<char>('a' + i % 26));
        }
    }
    ~Stage() {
        for (auto* host : node_hosts) world.go_on(*host);
        world.go_on(master_host);
        if (client) on(client_host, [&] { client.reset(); });
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            if (nodes[i]) on(*node_hosts[i], [&] { nodes[i]->stop(); });
        }
        on(master_host, [&] {
            if (master) master->stop();
        });
        on(client_host, [&] {
            nodes.clear();
            master.reset();
        });
    }

    void start_master() {
        master::MasterOptions options;
        options.lane_host = ip(master_host);
        options.lane_port = kLanePort;
        options.metadata.client_ttl_ms = 3'600'000;  // the master never helps by ending a session
        options.metadata.session_grace_ms = 3'600'000;
        options.epoch = ++epoch;
        master = std::make_unique<master::Master>(options);
        master->start();
    }
    void start_node(std::size_t index) {
        node::NodeOptions options;
        options.segments.push_back({"", 16u << 20});
        options.lane = ip(master_host) + ":" + std::to_string(kLanePort);
        options.data_host = ip(*node_hosts[index]);
        options.data_port = data_port;
        options.host_id = node_hosts[index]->name;
        options.data_threads = 1;
        options.memory_fault_threads = 1;
        options.shared_memory = false;  // the scripted kernel knows IPv4 only
        options.peer_bytes_max = node_bytes_max;
        nodes[index] = std::make_unique<node::Node>(options);
        nodes[index]->start();
        CHECK(nodes[index]->wait_mounted(10'000));
    }
    void connect(std::uint64_t rpc_timeout_ms = 10'000) {
        on(client_host, [&] {
            client::Options options;
            options.lane = ip(master_host) + ":" + std::to_string(kLanePort);
            options.rpc_timeout_ms = rpc_timeout_ms;
            options.connections_a_peer_max = connections_max;
            std::string why;
            Status status{};
            client = client::Client::connect(options, why, status);
            CHECK_EQUAL(why, "");
        });
    }

    // The world goes on until `body` has returned.
    void on(Host& host, const std::function<void()>& body) {
        bool is_done = false;
        world.spawn(host, "test", [&] {
            body();
            is_done = true;
        });
        run_until([&] { return is_done; });
    }
    void run_until(const std::function<bool()>& is_reached) {
        const auto until_ms = world.now_ms() + kHangMs;
        while (!is_reached()) {
            CHECK(world.advance());
            if (world.now_ms() > until_ms) check::fail(__FILE__, __LINE__, "a hang");
        }
    }
    void let_pass(Ms delay_ms) {
        const auto until_ms = world.now_ms() + delay_ms;
        world.at(until_ms, [] {});
        run_until([&] { return world.now_ms() >= until_ms; });
    }

    struct Outcome {
        Ms took_ms = 0;
        std::vector<Status> statuses;
        std::size_t count(Status status) const {
            return static_cast<std::size_t>(std::count(statuses.begin(), statuses.end(), status));
        }
    };
    Outcome get(const std::vector<std::string>& wanted) {
        Outcome outcome;
        on(client_host, [&] {
            const std::vector<std::string_view> views(wanted.begin(), wanted.end());
            std::vector<std::string> room(wanted.size(), std::string(kValueBytes, '?'));
            std::vector<client::Target> targets;
            for (auto& each : room)
                targets.push_back({reinterpret_cast<std::uint8_t*>(each.data()), each.size()});
            client::CallReport report;
            const auto begun_ms = world.now_ms();
            const auto results = client->get_into_many(views, targets, {}, report);
            outcome.took_ms = world.now_ms() - begun_ms;
            for (std::size_t i = 0; i < results.size(); ++i) {
                outcome.statuses.push_back(results[i].status);
                if (results[i].status == Status::kOk) CHECK(room[i] == values[i % kKeys]);
            }
        });
        return outcome;
    }
    Outcome put(const std::vector<std::string>& wanted) {
        Outcome outcome;
        on(client_host, [&] {
            const std::vector<std::string_view> views(wanted.begin(), wanted.end());
            std::vector<iovec> pieces(wanted.size());
            std::vector<client::Value> given(wanted.size());
            for (std::size_t i = 0; i < wanted.size(); ++i) {
                pieces[i] = {values[i % kKeys].data(), kValueBytes};
                given[i] = {&pieces[i], 1, kValueBytes};
            }
            client::CallReport report;
            const auto begun_ms = world.now_ms();
            outcome.statuses = client->put_many(views, given, {}, {}, {}, {}, report);
            outcome.took_ms = world.now_ms() - begun_ms;
        });
        return outcome;
    }
    std::vector<std::string> others(const std::string& prefix) const {
        auto named = keys;
        for (auto& key : named) key = prefix + key;
        return named;
    }

    // The process of this node ends; an ill one listens where it did.
    void fall_ill(std::size_t index, Illness illness) {
        kernel.sever(*node_hosts[index], true);
        on(*node_hosts[index], [&] {
            nodes[index]->stop();
            nodes[index].reset();
            kernel.revive(*node_hosts[index]);
            ill = std::make_unique<IllPeer>(world, *node_hosts[index], kDataPort, illness);
        });
    }
    void master_falls_ill(Illness illness) {
        kernel.sever(master_host, true);
        on(master_host, [&] {
            master->stop();
            master.reset();
            kernel.revive(master_host);
            ill = std::make_unique<IllPeer>(world, master_host, kLanePort, illness);
        });
    }
    void get_well(std::size_t index) {
        ill->end();
        run_until([&] { return ill->has_ended(); });
        on(*node_hosts[index], [&] { start_node(index); });
    }
    // Of all keys, those that this node holds are missing, and no call is spent on it.
    void check_left_out(const std::string& name) {
        for (int i = 0; i < 20; ++i) {
            const auto later = get(keys);
            CHECK(later.took_ms <= kLaterMs);
            CHECK_EQUAL(later.count(Status::kOk) + later.count(Status::kUnreachable), kKeys);
            let_pass(317);  // over several probes
            if (i % 10 != 0) continue;
            const auto put_later = put(others(name + std::to_string(i)));
            CHECK_EQUAL(put_later.count(Status::kOk), kKeys);
            CHECK(put_later.took_ms <= kLaterMs);
        }
    }

    const std::uint64_t node_bytes_max;
    World world{7};
    FaultCounts faults;
    Kernel kernel;
    Host& master_host;
    Host& client_host;
    std::vector<Host*> node_hosts;
    std::uint64_t epoch = 0;
    std::uint32_t connections_max = 8;
    std::uint16_t data_port = kDataPort;
    std::unique_ptr<master::Master> master;
    std::vector<std::unique_ptr<node::Node>> nodes;
    std::unique_ptr<client::Client> client;
    std::unique_ptr<IllPeer> ill;
    std::vector<std::string> keys;
    std::vector<std::string> values;
};

// ---- nodes

TEST(a_stopped_node_costs_one_call_two_seconds_and_later_ones_nothing) {
    for (const bool is_put_first : {false, true}) {
        Stage stage;
        stage.connect();
        CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
        CHECK_EQUAL(stage.get(stage.keys).count(Status::kOk), kKeys);
        stage.world.stop(*stage.node_hosts[1], kNever);
        if (is_put_first) {
            const auto put = stage.put(stage.others("first "));
            CHECK(put.took_ms <= kFirstMs);
            CHECK_EQUAL(put.count(Status::kOk), kKeys);
        } else {
            const auto get = stage.get(stage.keys);
            CHECK(get.took_ms <= kFirstMs);
            CHECK(get.count(Status::kOk) > 0 && get.count(Status::kUnreachable) > 0);
        }
        stage.check_left_out("later ");
        stage.world.go_on(*stage.node_hosts[1]);
        stage.let_pass(client::kProbeDelayMaxMs + 1'000);
        const auto well = stage.get(stage.keys);  // which spends nothing on finding out
        CHECK_EQUAL(well.count(Status::kOk), kKeys);
        CHECK(well.took_ms <= kLaterMs);
    }
}

// They were dialled one after the other, a second each.
TEST(many_stopped_nodes_without_a_connection_cost_no_more_than_one) {
    constexpr std::size_t kNodes = 8;
    Stage stage(kNodes);
    stage.connect();
    CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
    stage.connect();  // another one, which knows nobody
    for (std::size_t i = 1; i < kNodes; ++i) stage.world.stop(*stage.node_hosts[i], kNever);
    const auto first = stage.get(stage.keys);
    CHECK(first.took_ms <= kFirstMs);
    CHECK(first.count(Status::kOk) > 0);
    stage.check_left_out("later ");
    for (auto* host : stage.node_hosts) stage.world.go_on(*host);
    stage.let_pass(client::kProbeDelayMaxMs + 1'000);
    const auto well = stage.get(stage.keys);
    CHECK_EQUAL(well.count(Status::kOk), kKeys);
    CHECK(well.took_ms <= kLaterMs);
}

// Found by reading: a call that ended with its own deadline before a node counted as stalled told nobody, so
// that each call found the same node out anew.
TEST(calls_with_short_deadlines_learn_of_a_stopped_node_too) {
    for (const bool is_connected : {true, false}) {
        Stage stage;
        stage.connect();
        CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
        stage.connect(600);
        if (is_connected) CHECK_EQUAL(stage.get(stage.keys).count(Status::kOk), kKeys);
        stage.world.stop(*stage.node_hosts[1], kNever);
        for (unsigned i = 0; i < client::kPeerFailuresMax; ++i) CHECK(stage.get(stage.keys).took_ms <= 700);
        const auto later = stage.get(stage.keys);
        CHECK(later.took_ms <= kLaterMs);
        CHECK(later.count(Status::kOk) > 0);
    }
}

TEST(an_ill_node_costs_two_calls_two_seconds_each_at_most_and_another_process_there_is_found) {
    for (const auto illness : kIllnesses) {
        for (const bool is_put_first : {false, true}) {
            Stage stage;
            stage.connect();
            CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
            stage.fall_ill(1, illness);
            // A peer that answers nonsense is found out by the second call, one that is silent by the first.
            Ms most_ms = 0;
            for (int i = 0; i < 2; ++i) {
                const auto put = is_put_first ? stage.put(stage.others("new " + std::to_string(i)))
                                              : stage.get(stage.keys);
                CHECK(put.took_ms <= kFirstMs);
                most_ms = std::max(most_ms, put.took_ms);
                if (is_put_first) CHECK_EQUAL(put.count(Status::kOk), kKeys);
            }
            const auto get = stage.get(stage.keys);
            CHECK(get.took_ms <= kFirstMs);
            CHECK(get.count(Status::kOk) > 0);
            CHECK(get.count(Status::kOk) < kKeys);
            stage.get_well(1);
            stage.let_pass(client::kProbeDelayMaxMs + 1'000);
            const auto again = stage.others("again ");
            const auto put = stage.put(again);
            CHECK_EQUAL(put.count(Status::kOk), kKeys);
            CHECK(put.took_ms <= kLaterMs);
            const auto well = stage.get(again);
            CHECK_EQUAL(well.count(Status::kOk), kKeys);
            CHECK(well.took_ms <= kLaterMs);
            CHECK(stage.nodes[1]->status().counts.replicas > 0);
        }
    }
}

// ---- the master

TEST(an_ill_master_holds_no_call_beyond_its_deadline_and_the_next_one_is_found) {
    constexpr Ms kDeadlineMs = 5'000;
    constexpr std::size_t kDialsMax = 100;  // of a call and the keeper's in that time
    for (const auto illness : kIllnesses) {
        Stage stage;
        stage.connect(kDeadlineMs);
        CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
        stage.master_falls_ill(illness);
        const auto dials = stage.ill->dials();
        const auto outcome = stage.get(stage.keys);
        CHECK(outcome.took_ms <= kDeadlineMs + client::kWakeMs);
        CHECK_EQUAL(outcome.count(Status::kRpcFail) + outcome.count(Status::kDeadline), kKeys);
        // Nodes dial it as well.
        CHECK(stage.ill->dials() - dials < kDialsMax);
        stage.ill->end();
        stage.run_until([&] { return stage.ill->has_ended(); });
        stage.on(stage.master_host, [&] { stage.start_master(); });
        const auto since_ms = stage.world.now_ms();
        while (stage.get(stage.keys).count(Status::kOk) < kKeys) {
            CHECK(stage.world.now_ms() < since_ms + kDeadlineMs);
            stage.let_pass(100);
        }
    }
}

TEST(a_master_that_stops_for_a_while_is_asked_again_by_the_same_call) {
    for (const Ms length_ms : {Ms{500}, client::kLaneAnswerMs + 500}) {
        Stage stage;
        stage.connect();
        CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
        stage.world.stop(stage.master_host, stage.world.now_ms() + length_ms);
        const auto get = stage.get(stage.keys);
        CHECK_EQUAL(get.count(Status::kOk), kKeys);
        CHECK(get.took_ms <= length_ms + client::kLaneAnswerMs);
        stage.world.stop(stage.master_host, stage.world.now_ms() + length_ms);
        CHECK_EQUAL(stage.put(stage.others("more ")).count(Status::kOk), kKeys);
    }
}

// ---- too much at once

// Eight callers that want all values at once, from nodes that serve a third of that: they wait for each
// other, all within their deadline, and nobody takes a busy node for a lost one.
TEST(callers_of_a_busy_node_wait_their_turn) {
    for (const std::uint32_t connections : {1U, 8U}) {
        Stage stage(2, 1u << 20);
        stage.connections_max = connections;
        stage.connect();
        CHECK_EQUAL(stage.put(stage.keys).count(Status::kOk), kKeys);
        std::size_t done = 0;
        for (int i = 0; i < 8; ++i) {
            stage.world.spawn(stage.client_host, "caller", [&stage, &done] {
                const std::vector<std::string_view> views(stage.keys.begin(), stage.keys.end());
                std::vector<std::string> room(kKeys, std::string(kValueBytes, '?'));
                std::vector<client::Target> targets;
                for (auto& each : room)
                    targets.push_back({reinterpret_cast<std::uint8_t*>(each.data()), each.size()});
                client::CallReport report;
                for (const auto& result : stage.client->get_into_many(views, targets, {}, report))
                    CHECK_EQUAL(result.status, Status::kOk);
                CHECK(room == stage.values);
                ++done;
            });
        }
        stage.run_until([&] { return done == 8; });
        if (connections == 1) continue;
        std::uint64_t busy = 0;
        for (const auto& node : stage.nodes) {
            for (const auto& [name, value] : node->status().stats) busy += name == "busy_total" ? value : 0;
        }
        CHECK(busy > 0);
    }
}

// Every node that comes brings a new address, as with a data port of 0; what the client opened to those that
// left is closed and forgotten.
TEST(connections_to_nodes_that_left_do_not_pile_up) {
    Stage stage;
    stage.connect();
    std::size_t files_most = 0;
    std::size_t files_early = 0;
    for (int life = 0; life < 140; ++life) {
        stage.on(*stage.node_hosts[1], [&] {
            stage.nodes[1]->stop();
            stage.data_port = static_cast<std::uint16_t>(kDataPort + 1 + life);
            stage.start_node(1);
        });
        const auto fresh = stage.others("life " + std::to_string(life) + " ");
        CHECK_EQUAL(stage.put(fresh).count(Status::kOk), kKeys);
        CHECK_EQUAL(stage.get(fresh).count(Status::kOk), kKeys);
        stage.let_pass(1'000);
        if (life == 90) files_early = files_most;
        files_most = std::max(files_most, stage.kernel.open_files());
    }
    CHECK(files_most < files_early + 16);  // of 50 more lives
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
