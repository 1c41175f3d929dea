// What the network does to what is sent: how long it takes and what befalls it.
//
// Faults are wrappers: each asks the weather inside it and makes that worse now and then. Knows nothing of
// what the bytes mean.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "world.h"

namespace simulation {

enum class Fault : std::uint8_t {
    kReset,    // bytes lost for good: the connection breaks, each end hears of it some time later
    kDelay,    // bytes much later than others
    kRepeat,   // a request to the master comes again, over another connection
    kReorder,  // bytes overtook earlier ones between the same hosts, on another connection
    kClientCrash,
    kNodeCrash,
    kMasterCrash,
    kNodeSilence,  // nothing comes from or gets to a node for a while, then all of it
    kSlowNode,
    kClientPause,  // all threads of a process stop for a while; its sockets stay open
    kNodePause,
    kMasterPause,
    kMove,             // the next master is at another address
    kTakeover,         // another master starts while the last one is stopped, and wakes again
    kPartition,        // two hosts hear each other only later
    kOneWayPartition,  // one of them hears the other only later
    kRefused,          // a connection could not be made
    kLostRecord,       // a node drops a value that nobody ended, and says nothing
    kStrayRecord,      // a node holds something that nobody granted
    kCount
};
inline constexpr std::array<const char*, static_cast<std::size_t>(Fault::kCount)> kFaultNames{
    "resets",         "delays",        "repeats",    "reorders",           "client_crashes", "node_crashes",
    "master_crashes", "node_silences", "slow_nodes", "client_pauses",      "node_pauses",    "master_pauses",
    "master_moves",   "takeovers",     "partitions", "one_way_partitions", "refused",
    "lost_records",   "stray_records"};

struct FaultCounts {
    std::array<std::uint64_t, static_cast<std::size_t>(Fault::kCount)> of{};
    std::uint64_t& operator[](Fault fault) { return of[static_cast<std::size_t>(fault)]; }
    std::uint64_t operator[](Fault fault) const { return of[static_cast<std::size_t>(fault)]; }
};

// Bytes that go from one host to another together.
struct Passage {
    const Host* from = nullptr;
    const Host* to = nullptr;
    std::size_t bytes = 0;
};

struct Fate {
    Ms delay_ms = 0;
    bool is_broken = false;  // neither these bytes nor later ones of the connection arrive
};

class Weather {
  public:
    virtual ~Weather() = default;
    virtual Fate passage(const Passage& passage) = 0;
};

// Some latency, and a bandwidth.
class FairWeather final : public Weather {
  public:
    FairWeather(Random& random, Ms latency_max_ms, std::uint64_t bytes_a_ms)
        : random_(random), latency_max_ms_(latency_max_ms), bytes_a_ms_(bytes_a_ms) {}
    Fate passage(const Passage& passage) override;

  private:
    Random& random_;
    Ms latency_max_ms_;
    std::uint64_t bytes_a_ms_;
};

// The wrappers act while `is_on`, so that the faults can heal.
class Resets final : public Weather {
  public:
    Resets(std::unique_ptr<Weather> inside, Random& random, std::uint64_t in_10000, const bool& is_on,
           FaultCounts& counts)
        : inside_(std::move(inside)), random_(random), in_10000_(in_10000), is_on_(is_on), counts_(counts) {}
    Fate passage(const Passage& passage) override;

  private:
    std::unique_ptr<Weather> inside_;
    Random& random_;
    std::uint64_t in_10000_;
    const bool& is_on_;
    FaultCounts& counts_;
};

// Most are short; some end on a deadline of the system, or beside it.
class Delays final : public Weather {
  public:
    Delays(std::unique_ptr<Weather> inside, Random& random, std::uint64_t in_10000, std::vector<Ms> deadlines,
           const bool& is_on, FaultCounts& counts)
        : inside_(std::move(inside)),
          random_(random),
          in_10000_(in_10000),
          deadlines_(std::move(deadlines)),
          is_on_(is_on),
          counts_(counts) {}
    Fate passage(const Passage& passage) override;

  private:
    std::unique_ptr<Weather> inside_;
    Random& random_;
    std::uint64_t in_10000_;
    std::vector<Ms> deadlines_;
    const bool& is_on_;
    FaultCounts& counts_;
};

// What goes from one host to another is held back until an hour that belongs to the two of them.
class Partitions final : public Weather {
  public:
    using Cuts = std::map<std::pair<const Host*, const Host*>, Ms>;  // from, to: until when
    Partitions(std::unique_ptr<Weather> inside, const Cuts& cuts) : inside_(std::move(inside)), cuts_(cuts) {}
    Fate passage(const Passage& passage) override;

  private:
    std::unique_ptr<Weather> inside_;
    const Cuts& cuts_;
};

// Hosts that are muted or slow (Host::muted_until, Host::slowness).
class IllHosts final : public Weather {
  public:
    explicit IllHosts(std::unique_ptr<Weather> inside) : inside_(std::move(inside)) {}
    Fate passage(const Passage& passage) override;

  private:
    std::unique_ptr<Weather> inside_;
};

}  // namespace simulation
