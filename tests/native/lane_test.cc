// A whole native master under many threads at once: made for the thread sanitizer (MOONCAKE_SANITIZE=thread),
// and a test of nothing finer than that everybody is answered and the state stays sound.
#include <poll.h>

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "master/master.h"
#include "net/client_socket.h"
#include "net/event_loop.h"
#include "wire/control.h"
#include "wire/lane.h"

namespace {

using namespace mooncake;
using wire::Buffer;
using wire::Status;
using wire::Verb;

constexpr std::uint64_t kHangMs = 60'000;
constexpr int kClients = 8;
constexpr int kRequestsAClient = 400;

Buffer packed(const std::function<void(wire::Writer&)>& encode) {
    Buffer body;
    wire::Writer writer(body);
    encode(writer);
    return body;
}

// A blocking lane connection with a session.
class Connection {
  public:
    Connection(std::uint16_t port, wire::Role role, const wire::Uuid& process) {
        wire::Hello hello;
        hello.role = role;
        hello.process = process;
        std::string why;
        Status status = Status::kOk;
        socket_ = net::ClientSocket::connect({"127.0.0.1", port}, hello, net::monotonic_ms() + kHangMs, why,
                                             status);
        CHECK(socket_ != nullptr);
        wire::OpenSession open;
        open.process = process;
        open.host_id = "host";
        CHECK(ask(Verb::kOpenSession, packed([&](auto& writer) { wire::encode(open, writer); })) ==
              Status::kOk);
        session = wire::parse_open_session_reply(answer)->session;
    }

    void send(Verb verb, const Buffer& body, std::uint64_t request_id, std::uint8_t flags = 0) {
        wire::FrameHeader header;
        header.verb = verb;
        header.flags = flags;
        header.request_id = request_id;
        Buffer frame;
        const std::size_t start = wire::begin_frame(frame, header);
        wire::Writer(frame).bytes(body);
        wire::finish_frame(frame, start);
        std::array<iovec, 1> pieces{{{frame.data(), frame.size()}}};
        CHECK(socket_->send_all(pieces, net::monotonic_ms() + kHangMs) == net::IoResult::kDone);
    }

    // Confirms retire commands that come first.
    Status ask(Verb verb, const Buffer& body) {
        const std::uint64_t request_id = ++last_request_;
        send(verb, body, request_id);
        for (;;) {
            wire::FrameHeader header;
            wire::Bytes reply;
            CHECK(socket_->receive_frame(header, reply, net::monotonic_ms() + kHangMs) ==
                  net::IoResult::kDone);
            if (!header.is_reply()) {
                confirm(header, reply);
                continue;
            }
            CHECK(header.request_id == request_id);
            answer.assign(reply.begin(), reply.end());
            return header.status;
        }
    }

    void serve_commands(int for_ms) {
        pollfd waiting{socket_->fd(), POLLIN, 0};
        poll(&waiting, 1, for_ms);
        wire::FrameHeader header;
        wire::Bytes body;
        while (socket_->try_receive_frame(header, body) == net::IoResult::kDone) confirm(header, body);
    }

    wire::SessionId session = 0;
    std::uint64_t sequence = 0;
    Buffer answer;

  private:
    void confirm(const wire::FrameHeader& header, wire::Bytes body) {
        CHECK(header.verb == Verb::kRetire);
        const auto command = wire::parse_retire(body);
        CHECK(command.has_value());
        const Buffer reply = packed(
            [&](auto& writer) { wire::encode_retire_reply(command->command_id, command->replicas, writer); });
        send(Verb::kRetire, reply, header.request_id, wire::kFlagReply);
    }

    std::unique_ptr<net::ClientSocket> socket_;
    std::uint64_t last_request_ = 0;
};

wire::Uuid uuid_of(int number) {
    wire::Uuid uuid{};
    uuid.fill(static_cast<std::uint8_t>(number + 1));
    return uuid;
}

// A node that confirms at once, loses its connection now and then, and at last goes silent.
void run_node(std::uint16_t port, int number, std::atomic<int>& ready, const std::atomic<bool>& stop) {
    const std::string name = "node-" + std::to_string(number);
    auto connection = std::make_unique<Connection>(port, wire::Role::kNode, uuid_of(100 + number));
    wire::SegmentDescription segment;
    segment.capacity_bytes = 1 << 20;
    segment.incarnation = uuid_of(100 + number);
    segment.name = name;
    segment.host_id = "host";
    segment.endpoints = {"tcp://127.0.0.1:1"};
    CHECK(connection->ask(Verb::kMount, packed([&](auto& writer) {
                              wire::encode_mount({connection->session, 1, 0, 0}, {},
                                                 std::span(&segment, 1), writer);
                          })) == Status::kOk);
    ++ready;
    for (int turn = 1; !stop; ++turn) {
        connection->serve_commands(5);
        const Status status =
            connection->ask(Verb::kReport, packed([&](auto& writer) {
                                wire::encode_report({connection->session, 0, 0, 0}, 0, 0, {}, {}, writer);
                            }));
        CHECK(status == Status::kOk);
        if (turn % 50 == 0) {
            connection = std::make_unique<Connection>(port, wire::Role::kNode, uuid_of(100 + number));
        }
    }
}

void run_client(std::uint16_t port, int number) {
    std::mt19937 random(static_cast<unsigned>(number));
    auto connection = std::make_unique<Connection>(port, wire::Role::kClient, uuid_of(number));
    for (int i = 0; i < kRequestsAClient; ++i) {
        const std::string name = "key-" + std::to_string(random() % 24);
        const std::string_view key = name;
        const wire::Prefix reading{connection->session, 0, 0, 0};
        const wire::Prefix changing{connection->session, ++connection->sequence, wire::kRemoveForce, 0};
        const auto keys = [&](const wire::Prefix& prefix) {
            return packed(
                [&](auto& writer) { wire::encode_keys_request(prefix, {}, std::span(&key, 1), writer); });
        };
        switch (random() % 6) {
            case 0:
                CHECK(connection->ask(Verb::kExists, keys(reading)) == Status::kOk);
                break;
            case 1:
                CHECK(connection->ask(Verb::kLookup, keys(reading)) == Status::kOk);
                break;
            case 2:
                CHECK(connection->ask(Verb::kRemove, keys(changing)) == Status::kOk);
                break;
            default: {
                const std::uint64_t size = 4096 << (random() % 7);
                const std::uint64_t no_parent = 0;
                CHECK(connection->ask(Verb::kPutStart, packed([&](auto& writer) {
                                          wire::encode_put_start(changing, {}, {}, {}, std::span(&key, 1),
                                                                 std::span(&size, 1),
                                                                 std::span(&no_parent, 1), writer);
                                      })) == Status::kOk);
                const auto grant = wire::Places<wire::GrantRecord>::parse(connection->answer);
                CHECK(grant && grant->count == 1);
                if (grant->record(0).status != Status::kOk) break;
                const wire::PutEndItem item{grant->record(0).put_id, 1, 0};
                const wire::ReplicaResult result{grant->place(0).replica, Status::kOk, 0, 0};
                const wire::Prefix ending{connection->session, ++connection->sequence, 0, 0};
                CHECK(connection->ask(Verb::kPutEnd, packed([&](auto& writer) {
                                          wire::encode_put_end(ending, std::span(&item, 1),
                                                               std::span(&result, 1), writer);
                                      })) == Status::kOk);
            }
        }
        if (i % 100 == 99) {
            connection.reset();
            connection = std::make_unique<Connection>(port, wire::Role::kClient, uuid_of(number));
            connection->sequence = static_cast<std::uint64_t>(i) * 10;
        }
    }
}

}  // namespace

TEST(many_clients_nodes_and_questions_at_once) {
    master::MasterOptions options;
    options.lane_host = "127.0.0.1";
    options.lane_threads = 2;
    options.driver.remove_confirm_timeout_ms = 200;
    options.metadata.keys_a_step_max = 1;
    options.metadata.session_grace_ms = 50;
    master::Master master(options);
    master.start();
    std::atomic<bool> stop = false;
    std::atomic<int> ready = 0;
    std::vector<std::thread> nodes;
    for (int i = 0; i < 2; ++i) {
        nodes.emplace_back([&, i] { run_node(master.lane_port(), i, ready, stop); });
    }
    while (ready < 2) std::this_thread::yield();
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i) clients.emplace_back([&, i] { run_client(master.lane_port(), i); });
    std::thread observer([&] {
        while (!stop) {
            CHECK(!master.stats().empty());
            master.request_histograms();
            master.check_invariants();
            std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
    });
    for (auto& client : clients) client.join();
    stop = true;
    for (auto& node : nodes) node.join();
    observer.join();
    master.check_invariants();
    master.stop();
}

// A session without heartbeats is expired by the time thread while another goes on asking.
TEST(silent_sessions_expire_while_others_work) {
    master::MasterOptions options;
    options.lane_host = "127.0.0.1";
    options.metadata.client_ttl_ms = 300;
    master::Master master(options);
    master.start();
    Connection silent(master.lane_port(), wire::Role::kClient, uuid_of(1));
    Connection lively(master.lane_port(), wire::Role::kClient, uuid_of(2));
    const auto heartbeat = [](Connection& connection) {
        return connection.ask(Verb::kHeartbeat, packed([&](auto& writer) {
                                  wire::encode_prefix({connection.session, 0, 0, 0}, {}, writer);
                              }));
    };
    const auto sessions = [&] {
        for (const auto& [name, value] : master.stats()) {
            if (name == "connected_sessions_count") return value;
        }
        return std::uint64_t{0};
    };
    CHECK(sessions() == 2);
    while (sessions() > 1) {
        heartbeat(lively);
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    CHECK(heartbeat(silent) == Status::kSessionUnknown);
    master.stop();
}

int main(int argc, char** argv) { return check::run(argc, argv); }
