// How soon, if at all, each class of accesses is followed by another of the same key; and from that, how long
// each class is worth keeping in the room there is.
//
// For each class and age: how often the key came again at that age, and for how many accesses keys of that
// age were watched. Their quotient is the chance that it comes now (the hazard). Out of it come two curves of
// the time t for which a key is kept: the hits h(t), and the room-time r(t) that it costs. Room goes to the
// steepest pieces of the curves, over all classes, until there is none left.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncake::metadata {

class ReuseCurves {
  public:
    static constexpr std::size_t kClasses = 64;
    static constexpr std::size_t kAges = 100;  // four an octave, from 64 accesses on

    static std::size_t age_index(std::uint64_t age);
    static double age_begin(std::size_t index);

    void began(std::size_t kind) { counts_[kind].began += 1; }
    void came_again(std::size_t kind, std::uint64_t age) { counts_[kind].came[age_index(age)] += 1; }
    void watched(std::size_t kind, std::uint64_t age, double accesses) {
        counts_[kind].watched[age_index(age)] += static_cast<float>(accesses);
    }
    // Older news count less: all of it by this factor.
    void fade(double factor);

    // How long a class is kept: `share` of its keys for `longer`, the others for `shorter`.
    struct Stay {
        double shorter = 0;
        double longer = 0;
        double share = 0;
    };
    // Gives out the room there is, in keys.
    void divide(double keys_that_fit);
    const Stay& stay(std::size_t kind) const { return stays_[kind]; }
    double longest() const { return longest_; }
    // Of all accesses, the share that would hit: with these stays, and in a cache without an end.
    double expected_hits() const { return expected_hits_; }
    double lru_hits() const { return lru_hits_; }  // with one stay for all
    double reachable_hits() const { return reachable_hits_; }

  private:
    struct Counts {
        double began = 0;
        std::array<float, kAges> came{};
        std::array<float, kAges> watched{};
    };
    struct Piece {  // of a curve: from one vertex of its upper hull to the next
        std::size_t kind;
        double until;  // the age where it ends
        double hits;   // an access of any class
        double room;   // keys

        double worth() const { return hits / room; }
    };
    double hits_of_lru(double keys_that_fit) const;
    void add_pieces(std::size_t kind, const Counts& all, double all_began, std::vector<Piece>& pieces);

    std::array<Counts, kClasses> counts_{};
    std::array<Stay, kClasses> stays_{};
    // Of all classes together, by the age until which all would be kept.
    std::array<double, kAges> hits_by_age_{};
    std::array<double, kAges> room_by_age_{};
    double longest_ = 0;
    double expected_hits_ = 0;
    double lru_hits_ = 0;
    double reachable_hits_ = 0;
};

}  // namespace mooncake::metadata
