// What may be read, judged from outside: which values were committed and ended when, as the frames between
// clients and master showed it, and whether an answer fits.
//
// A small linearizability check a key. Times are steps of the world, so nothing is simultaneous. A value is
// named by its put_id. It certainly counts from its commit's first answer on, at the latest; a remove, or the
// commit of another value, took effect some time between its first sending and its first answer. So a get
// must not return a value that was committed before something was sent that was answered before the get
// began. Where readers remember places, a value that some get saw before its commit was answered ends nothing
// yet: another reader may still be served the one before.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "wire/ids.h"
#include "wire/lane.h"
#include "world.h"

namespace simulation {

inline constexpr std::uint64_t kNotYet = ~std::uint64_t{0};

// Why values go: what the masters have counted so far, all in all, and what befell nodes and masters.
struct Losses {
    std::uint64_t evicted = 0;
    std::uint64_t lost = 0;       // with their segments
    std::uint64_t expelled = 0;   // segments
    std::uint64_t refused = 0;    // replicas that a node reported and a new master had no place for
    std::uint64_t fences = 0;     // steps while a node did not serve because it heard no master
    std::uint64_t crashes = 0;    // of nodes, which the master may not have noticed yet, or of a record
    std::uint64_t give_ups = 0;   // of nodes that began anew, without what they had held
    std::uint64_t takeovers = 0;  // times there were two masters
    std::uint64_t reigns = 0;     // of masters
    std::uint64_t stops = 0;      // of masters, whose clock then stood still
};

class History {
  public:
    // While there are two masters, what either of them says has ended is no promise: one of them rules
    // nothing.
    History(std::function<Losses()> losses, std::function<bool()> has_two_masters, bool places_are_remembered)
        : losses_(std::move(losses)),
          has_two_masters_(std::move(has_two_masters)),
          places_are_remembered_(places_are_remembered) {}

    struct Put {
        std::uint64_t ttl_ms = 0;
        bool is_hard_pinned = false;
    };
    // ---- what the frames show
    void granted(const std::string& key, mooncake::wire::PutId put_id, const Put& put,
                 std::vector<mooncake::wire::ReplicaId> replicas);
    void commit_sent(mooncake::wire::PutId put_id);
    void commit_answered(mooncake::wire::PutId put_id, bool is_visible);
    void revoke_sent(mooncake::wire::PutId put_id);
    // Answers a number for remove_answered.
    std::size_t remove_sent(const std::string& key);
    void remove_answered(const std::string& key, std::size_t remove, bool is_removed);
    const std::string* key_of(mooncake::wire::PutId put_id) const;

    // ---- what clients were told; empty = it fits, else why it does not. `began`: the step at which the
    // call began.
    std::string hit(const std::string& key, mooncake::wire::PutId put_id, std::uint64_t began, Ms began_ms);
    std::string present(const std::string& key, std::uint64_t began, Ms began_ms) const;
    // A miss: no value was there, or something made it go. `reason`: what the master says of it now.
    std::string miss(const std::string& key, std::uint64_t began, mooncake::wire::Absence reason);

    std::size_t misses_judged() const { return misses_judged_; }  // that nothing excused beforehand

  private:
    struct Value {
        mooncake::wire::PutId put_id = 0;
        Put put;
        std::uint64_t granted = kNotYet;
        std::uint64_t sent = kNotYet;       // its commit, first
        std::uint64_t answered = kNotYet;   // its commit, first, whatever the answer
        std::uint64_t committed = kNotYet;  // known to be visible since then at the latest
        Ms committed_ms = kNever;
        bool is_acknowledged = false;
        bool may_be_revoked = false;
        std::vector<mooncake::wire::ReplicaId> replicas;
        Losses losses_before;  // when its commit was sent; crashes: when it was granted
    };
    struct End {
        mooncake::wire::PutId by = 0;  // the value that took its place; 0 = a remove
        std::uint64_t sent = kNotYet;
        std::uint64_t answered = kNotYet;
        bool is_sure = false;  // answered OK
    };
    struct Key {
        std::vector<Value> values;
        std::vector<End> ends;
    };
    Value* find(mooncake::wire::PutId put_id);
    // When it may have become visible: a master that rebuilds its index takes what is sealed for committed.
    std::uint64_t may_be_visible(const Value& value) const;
    // Why it cannot be read by who began then; empty if it can.
    std::string ended(const Key& key, const Value& value, std::uint64_t began, Ms began_ms) const;
    static bool is_ended(const Value& value, const End& end, std::uint64_t began);
    static bool is_excused(const Value& value, const Losses& now, mooncake::wire::Absence reason);
    bool is_undisputed(const Key& key, const Value& value) const;

    std::function<Losses()> losses_;
    std::function<bool()> has_two_masters_;
    const bool places_are_remembered_;
    std::map<std::string, Key, std::less<>> keys_;
    std::map<mooncake::wire::PutId, std::pair<std::string, std::size_t>> places_;
    std::size_t misses_judged_ = 0;
};

}  // namespace simulation
