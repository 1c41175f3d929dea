#include "works.h"

#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "node.h"

namespace mooncake::bench {

namespace {

constexpr std::size_t kKeysABatch = 1'000;
constexpr std::size_t kKeysALongBatch = 10'000;
constexpr std::uint64_t kValueBytes = 64u << 10;
constexpr std::uint64_t kHeartbeatNs = 1'000'000'000;
// Enough to cross the high watermark from 89 % of a table's memory.
constexpr double kOverfill = 0.015;

std::string file_text(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::string text;
    std::getline(file, text);
    return text;
}

// Time that the lane's threads were on a core, system time included.
std::uint64_t lane_cpu_ns(int pid) {
    std::uint64_t sum = 0;
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
        if (!file_text(task.path() / "comm").starts_with("mc-lane")) continue;
        sum += std::stoull(file_text(task.path() / "schedstat"));
    }
    return sum;
}

std::uint64_t process_cpu_ns(int pid) {
    timespec used{};
    clockid_t clock;
    if (clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &used) != 0) fail("no CPU clock");
    return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(used.tv_nsec);
}

std::uint64_t resident_bytes(int pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/statm");
    std::uint64_t pages = 0;
    file >> pages >> pages;
    return pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

struct Percentiles {
    explicit Percentiles(std::vector<std::uint64_t> ns) : sorted(std::move(ns)) {
        std::sort(sorted.begin(), sorted.end());
    }
    double us(double share) const {
        if (sorted.empty()) return 0;
        const auto at = static_cast<std::size_t>(share * static_cast<double>(sorted.size()));
        return static_cast<double>(sorted[std::min(at, sorted.size() - 1)]) / 1e3;
    }
    std::vector<std::uint64_t> sorted;
};

// Puts of whole batches, each put_start and put_end.
void put_batch(Peer& peer, std::uint64_t from, std::size_t count) {
    KeyBatch keys;
    for (std::size_t i = 0; i < count; ++i) keys.add(from + i);
    const std::vector<std::uint64_t> sizes(count, kValueBytes);
    const std::vector<std::uint64_t> parents(count, 0);
    const auto grants =
        wire::Places<wire::GrantRecord>::parse(peer.ask(wire::Verb::kPutStart, [&](wire::Writer& writer) {
            wire::encode_put_start(peer.next_prefix(), {}, {}, {}, keys.views(), sizes, parents, writer);
        }));
    if (!grants) fail("malformed answer to put_start");
    std::vector<wire::PutEndItem> items;
    std::vector<wire::ReplicaResult> results;
    for (std::size_t i = 0, place = 0; i < grants->count; ++i) {
        const auto grant = grants->record(i);
        if (!wire::ok(grant.status)) fail(std::string("put_start: ") + wire::status_name(grant.status));
        items.push_back({grant.put_id, grant.replica_count, 0});
        for (int copy = 0; copy < grant.replica_count; ++copy) {
            results.push_back({grants->place(place++).replica, wire::Status::kOk, 0, 0});
        }
    }
    peer.ask(wire::Verb::kPutEnd,
             [&](wire::Writer& writer) { wire::encode_put_end(peer.next_prefix(), items, results, writer); });
}

wire::Buffer random_keys_frame(Peer& peer, wire::Verb verb, std::uint64_t table, std::size_t count,
                               std::mt19937_64& random) {
    KeyBatch keys;
    for (std::size_t i = 0; i < count; ++i) keys.add(random() % table);
    return peer.frame(verb, [&](wire::Writer& writer) {
        wire::encode_keys_request(peer.prefix(), {}, keys.views(), writer);
    });
}

void ask_batch(Peer& peer, wire::Bytes frame) {
    peer.send(frame);
    wire::Bytes body;
    const wire::FrameHeader header = peer.receive(body);
    if (!wire::ok(header.status))
        fail(std::string("a batch was answered ") + wire::status_name(header.status));
}

void scan_all(Peer& peer) {
    std::uint64_t cursor = 0;
    do {
        const auto reply = wire::parse_list_reply(peer.ask(wire::Verb::kList, [&](wire::Writer& writer) {
            wire::encode_list(peer.prefix(), cursor, 1'000, "", writer);
        }));
        if (!reply) fail("malformed answer to list");
        cursor = reply->cursor;
    } while (cursor != 0);
}

double stat(Peer& peer, std::string_view name) {
    const auto stats = wire::parse_stats(peer.ask(
        wire::Verb::kStats, [&](wire::Writer& writer) { wire::encode_prefix(peer.prefix(), {}, writer); }));
    for (const auto& one : *stats) {
        if (one.name == name) return static_cast<double>(one.value);
    }
    return 0;
}

}  // namespace

Figures fill(const Master& master, std::uint64_t from, std::uint64_t count) {
    Peer peer(master.target, wire::Role::kClient);
    const std::uint64_t resident = resident_bytes(master.pid);
    const std::uint64_t cpu = lane_cpu_ns(master.pid);
    std::vector<std::uint64_t> times;
    std::uint64_t heard_ns = now_ns();
    for (std::uint64_t done = 0; done < count;) {
        if (now_ns() - heard_ns > kHeartbeatNs) {
            peer.ask(wire::Verb::kHeartbeat,
                     [&](wire::Writer& writer) { wire::encode_heartbeat(peer.prefix(), {}, {}, writer); });
            heard_ns = now_ns();
        }
        const std::size_t batch = std::min<std::uint64_t>(kKeysABatch, count - done);
        const std::uint64_t begun = now_ns();
        put_batch(peer, from + done, batch);
        times.push_back(now_ns() - begun);
        done += batch;
    }
    const double keys = static_cast<double>(count);
    const double grown = static_cast<double>(resident_bytes(master.pid)) - static_cast<double>(resident);
    const Percentiles batch(std::move(times));
    return {{"bytes_a_key_beyond_it", grown / keys - kKeyBytes},
            {"puts_a_cpu_s", keys * 1e9 / static_cast<double>(lane_cpu_ns(master.pid) - cpu)},
            {"batch_p50_us", batch.us(0.5)},
            {"batch_max_us", batch.us(1)}};
}

Figures batches(const Master& master, wire::Verb verb, std::uint64_t table, std::size_t count) {
    Peer peer(master.target, wire::Role::kClient);
    std::mt19937_64 random(now_ns());
    ask_batch(peer, random_keys_frame(peer, verb, table, kKeysABatch, random));
    const std::uint64_t lane = lane_cpu_ns(master.pid);
    const std::uint64_t process = process_cpu_ns(master.pid);
    std::vector<std::uint64_t> times;
    for (std::size_t i = 0; i < count; ++i) {
        const wire::Buffer frame = random_keys_frame(peer, verb, table, kKeysABatch, random);
        const std::uint64_t begun = now_ns();
        ask_batch(peer, frame);
        times.push_back(now_ns() - begun);
    }
    const double keys = static_cast<double>(count * kKeysABatch);
    const Percentiles batch(std::move(times));
    return {{"keys_a_cpu_s", keys * 1e9 / static_cast<double>(lane_cpu_ns(master.pid) - lane)},
            {"keys_a_process_cpu_s", keys * 1e9 / static_cast<double>(process_cpu_ns(master.pid) - process)},
            {"batch_p50_us", batch.us(0.5)},
            {"batch_p99_us", batch.us(0.99)}};
}

Figures singles(const Master& master, std::size_t connections, std::size_t depth, std::uint64_t table,
                std::uint64_t ms) {
    // Header, count, one status.
    constexpr std::size_t kAnswerBytes = wire::kFrameHeaderBytes + 4 + 2;
    struct One {
        std::unique_ptr<Peer> peer;
        std::vector<wire::Buffer> frames;
        std::size_t next = 0;
        std::size_t received = 0;
    };
    std::mt19937_64 random(now_ns());
    std::vector<One> all(connections);
    std::vector<pollfd> polled;
    for (auto& one : all) {
        one.peer = std::make_unique<Peer>(master.target, wire::Role::kClient);
        for (int i = 0; i < 128; ++i) {
            one.frames.push_back(random_keys_frame(*one.peer, wire::Verb::kExists, table, 1, random));
        }
        polled.push_back({one.peer->fd(), POLLIN, 0});
    }
    wire::Buffer burst;
    const auto send_some = [&](One& one, std::size_t count) {
        burst.clear();
        for (; count > 0; --count) {
            const auto& frame = one.frames[one.next++ % one.frames.size()];
            burst.insert(burst.end(), frame.begin(), frame.end());
        }
        one.peer->send(burst);
    };
    std::uint64_t answers = 0;
    std::vector<std::uint8_t> into(64u << 10);
    const std::uint64_t lane = lane_cpu_ns(master.pid);
    const std::uint64_t until = now_ns() + ms * 1'000'000;
    for (auto& one : all) send_some(one, depth);
    for (std::size_t under_way = connections * depth; under_way > 0;) {
        ::poll(polled.data(), polled.size(), 1'000);
        const bool over = now_ns() >= until;
        for (std::size_t i = 0; i < polled.size(); ++i) {
            if (polled[i].revents == 0) continue;
            const ssize_t n = ::recv(polled[i].fd, into.data(), into.size(), MSG_DONTWAIT);
            if (n <= 0) fail("the master closed a connection");
            all[i].received += static_cast<std::size_t>(n);
            const std::size_t whole = all[i].received / kAnswerBytes;
            all[i].received %= kAnswerBytes;
            answers += whole;
            under_way -= whole;
            if (over || whole == 0) continue;
            send_some(all[i], whole);
            under_way += whole;
        }
    }
    const double used = static_cast<double>(lane_cpu_ns(master.pid) - lane);
    return {{"requests_a_cpu_s", static_cast<double>(answers) * 1e9 / used},
            {"requests_a_s", static_cast<double>(answers) * 1e3 / static_cast<double>(ms)}};
}

Figures others(const Master& master, Crowd crowd, std::uint64_t table, std::uint64_t ms) {
    Peer asker(master.target, wire::Role::kClient);
    std::atomic<bool> is_over{false};
    std::atomic<std::uint64_t> crowd_ns{0};
    double evicted = stat(asker, "evicted_keys_total");
    std::thread crowded([&] {
        const std::uint64_t begun = now_ns();
        const std::uint64_t until = begun + ms * 1'000'000;
        if (crowd == Crowd::kInventory) {
            crowd_ns = tell_inventory(master.target, table);
            is_over = true;
            return;
        }
        Peer peer(master.target, wire::Role::kClient);
        std::mt19937_64 random(begun);
        const auto overfill = static_cast<std::uint64_t>(kOverfill * static_cast<double>(table));
        for (std::uint64_t fresh = 0; now_ns() < until;) {
            switch (crowd) {
                case Crowd::kBatches:
                    ask_batch(peer,
                              random_keys_frame(peer, wire::Verb::kLookup, table, kKeysALongBatch, random));
                    break;
                case Crowd::kEviction:
                    if (fresh >= overfill) {
                        std::this_thread::sleep_for(std::chrono::milliseconds(5));
                    } else {
                        put_batch(peer, (begun & 0xFFFFFFFFFFFF) * 1'000 + fresh, kKeysABatch);
                        fresh += kKeysABatch;
                    }
                    break;
                case Crowd::kScan:
                    scan_all(peer);
                    break;
                default:
                    std::this_thread::sleep_for(std::chrono::milliseconds(5));
            }
        }
        crowd_ns = now_ns() - begun;
        is_over = true;
    });
    std::mt19937_64 random(now_ns());
    std::vector<std::uint64_t> times;
    while (!is_over) {
        const wire::Buffer frame = random_keys_frame(asker, wire::Verb::kExists, table, 1, random);
        const std::uint64_t begun = now_ns();
        ask_batch(asker, frame);
        times.push_back(now_ns() - begun);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
    crowded.join();
    evicted = stat(asker, "evicted_keys_total") - evicted;
    const Percentiles latency(std::move(times));
    return {{"p50_us", latency.us(0.5)},
            {"p99_us", latency.us(0.99)},
            {"max_us", latency.us(1)},
            {"asked", static_cast<double>(latency.sorted.size())},
            {"crowd_s", static_cast<double>(crowd_ns) / 1e9},
            {"evicted_keys", evicted}};
}

Figures idle(const Master& master, std::uint64_t ms) {
    const std::uint64_t cpu = process_cpu_ns(master.pid);
    const std::uint64_t begun = now_ns();
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
    const double used = static_cast<double>(process_cpu_ns(master.pid) - cpu);
    return {{"cores", used / static_cast<double>(now_ns() - begun)}};
}

}  // namespace mooncake::bench
