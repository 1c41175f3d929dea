// Master, nodes and client in one process, over real sockets: what the client's driver does with threads,
// with peers that end, and with a master that comes back. For the sanitizers above all.
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "client/client.h"
#include "master/master.h"
#include "net/event_loop.h"
#include "node/node.h"

namespace {

using namespace mooncake;
using wire::Status;

std::unique_ptr<master::Master> start_master(std::uint16_t port, std::uint64_t epoch) {
    master::MasterOptions options;
    options.lane_host = "127.0.0.1";
    options.lane_port = port;
    options.epoch = epoch;
    auto made = std::make_unique<master::Master>(options);
    made->start();
    return made;
}

std::unique_ptr<node::Node> start_node(std::uint16_t lane_port) {
    node::NodeOptions options;
    options.segments = {{"", 64u << 20}};
    options.lane = "127.0.0.1:" + std::to_string(lane_port);
    options.data_host = "127.0.0.1";
    auto made = std::make_unique<node::Node>(options);
    made->start();
    CHECK(made->wait_mounted(20'000));
    return made;
}

std::unique_ptr<client::Client> connect(std::uint16_t lane_port) {
    client::Options options;
    options.lane = "127.0.0.1:" + std::to_string(lane_port);
    options.connect_timeout_ms = 5'000;
    std::string why;
    auto status = Status::kOk;
    auto made = client::Client::connect(options, why, status);
    if (!made) check::fail(__FILE__, __LINE__, why);
    return made;
}

std::string pattern(std::uint64_t seed, std::size_t size) {
    std::string bytes(size, '\0');
    for (std::size_t i = 0; i < size; ++i) {
        bytes[i] = static_cast<char>((seed * 0x9E3779B97F4A7C15ULL + i * 31 + (i >> 8)) >> 5);
    }
    return bytes;
}

Status put(client::Client& client, const std::string& key, const std::string& value,
           std::uint8_t replica_count = 1, std::uint64_t timeout_ms = 10'000) {
    const std::vector<std::string_view> keys{key};
    const iovec piece{const_cast<char*>(value.data()), value.size()};
    const client::Value values[]{{&piece, 1, value.size()}};
    client::PutOptions options;
    options.replica_count = replica_count;
    client::CallReport report;
    return client.put_many(keys, values, options, {}, {}, {timeout_ms, {}}, report)[0];
}

struct Got {
    Status status = Status::kOk;
    std::string value;
};
Got get(client::Client& client, const std::string& key, std::size_t capacity,
        std::uint64_t timeout_ms = 10'000) {
    const std::vector<std::string_view> keys{key};
    Got got{Status::kOk, std::string(capacity, '?')};
    const client::Target targets[]{{reinterpret_cast<std::uint8_t*>(got.value.data()), capacity}};
    client::CallReport report;
    const auto result = client.get_into_many(keys, targets, {timeout_ms, {}}, report)[0];
    got.status = result.status;
    got.value.resize(wire::ok(result.status) ? result.length : 0);
    return got;
}

template <class Condition>
void wait_until(Condition is_so) {
    const auto deadline = net::monotonic_ms() + 60'000;
    while (!is_so()) {
        CHECK(net::monotonic_ms() < deadline);
        std::this_thread::yield();
    }
}

TEST(threads_share_one_client) {
    const auto master = start_master(0, 1);
    const auto nodes = {start_node(master->lane_port()), start_node(master->lane_port())};
    const auto client = connect(master->lane_port());
    std::vector<std::thread> threads;
    for (std::uint64_t worker = 0; worker < 4; ++worker) {
        threads.emplace_back([&, worker] {
            const std::size_t sizes[] = {0, 10, 4096, 100'000, 3'000'000};
            for (std::uint64_t turn = 0; turn < 10; ++turn) {
                const auto key = std::to_string(worker) + "-" + std::to_string(turn);
                const auto value = pattern(worker * 100 + turn, sizes[turn % 5]);
                CHECK(put(*client, key, value, 2) == Status::kOk);
                const auto got = get(*client, key, value.size());
                CHECK(got.status == Status::kOk && got.value == value);
                client::CallReport report;
                const std::vector<std::string_view> keys{key};
                CHECK(client->remove_many(keys, true, {}, report)[0] == Status::kOk);
            }
        });
    }
    for (auto& thread : threads) thread.join();
    master->check_invariants();
}

TEST(close_during_calls_ends_them) {
    const auto master = start_master(0, 1);
    const auto node = start_node(master->lane_port());
    const auto client = connect(master->lane_port());
    std::atomic<int> rounds{0};
    std::vector<std::thread> threads;
    for (std::uint64_t worker = 0; worker < 3; ++worker) {
        threads.emplace_back([&, worker] {
            const auto key = std::to_string(worker);
            const auto value = pattern(worker, 2'000'000);
            while (!client->is_closed()) {
                put(*client, key, value);
                const auto got = get(*client, key, value.size());
                CHECK(got.status != Status::kOk || got.value == value);
                ++rounds;
            }
        });
    }
    wait_until([&] { return rounds >= 6; });
    client->close();
    for (auto& thread : threads) thread.join();
    CHECK(get(*client, "0", 10).status == Status::kClosed);
}

TEST(a_dead_node_costs_its_values_only) {
    const auto master = start_master(0, 1);
    auto first = start_node(master->lane_port());
    auto second = start_node(master->lane_port());
    const auto client = connect(master->lane_port());
    for (std::uint64_t i = 0; i < 10; ++i) {
        CHECK(put(*client, std::to_string(i), pattern(i, 50'000), 2) == Status::kOk);
    }
    first.reset();
    for (std::uint64_t i = 0; i < 10; ++i) {
        const auto got = get(*client, std::to_string(i), 50'000);
        CHECK(got.status == Status::kOk && got.value == pattern(i, 50'000));
        CHECK(put(*client, "new" + std::to_string(i), pattern(i, 1'000)) == Status::kOk);
    }
}

TEST(a_master_that_comes_back_finds_the_client_and_what_the_node_holds_again) {
    auto master = start_master(0, 1);
    const auto port = master->lane_port();
    const auto node = start_node(port);
    const auto client = connect(port);
    CHECK(put(*client, "before", "x") == Status::kOk);
    master->stop();
    master.reset();
    CHECK(get(*client, "before", 1, 300).status == Status::kRpcFail);
    master = start_master(port, 2);
    // The node mounts again in its own time; nothing else is needed. A put that the new master answers late,
    // because readers may remember places of the reign before, is there all the same at its next try.
    wait_until([&] {
        const Status status = put(*client, "after", "y", 1, 1'000);
        return status == Status::kOk || status == Status::kObjectAlreadyExists;
    });
    CHECK(get(*client, "after", 1).value == "y");
    CHECK(get(*client, "before", 1).value == "x");
}

}  // namespace

int main(int argc, char** argv) { return check::run(argc, argv); }
