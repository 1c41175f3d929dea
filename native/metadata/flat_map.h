// A hash map from non-zero 64-bit ids to small values: open addressing, linear probing, no node a key. Knows
// nothing of what the ids name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "wire/control.h"

namespace mooncake::metadata {

template <class Value>
class FlatMap {
  public:
    std::size_t size() const { return size_; }
    std::size_t bytes() const { return slots_.capacity() * sizeof(Slot); }

    Value* find(std::uint64_t id) {
        if (slots_.empty() || id == 0) return nullptr;  // 0 would meet an empty slot and seem found
        const std::size_t position = locate(id);
        return slots_[position].id == id ? &slots_[position].value : nullptr;
    }
    const Value* find(std::uint64_t id) const { return const_cast<FlatMap*>(this)->find(id); }

    // The id must be new, and not 0.
    void insert(std::uint64_t id, Value value) {
        if ((size_ + 1) * 4 > slots_.size() * 3) grow();
        slots_[locate(id)] = {id, std::move(value)};
        ++size_;
    }

    bool erase(std::uint64_t id) {
        if (slots_.empty() || id == 0) return false;
        std::size_t hole = locate(id);
        if (slots_[hole].id != id) return false;
        // Later entries of the run move up, so that no probe ever meets a gap.
        for (std::size_t next = (hole + 1) & mask(); slots_[next].id != 0; next = (next + 1) & mask()) {
            if (((next - home(slots_[next].id)) & mask()) >= ((next - hole) & mask())) {
                slots_[hole] = std::move(slots_[next]);
                hole = next;
            }
        }
        slots_[hole] = Slot{};
        --size_;
        return true;
    }

    // Visits the slots [from, from + count); answers where to go on, 0 at the end. Erasing or inserting
    // between two calls may hide some entries from one walk, never make one appear that is not there.
    template <class Visit>
    std::size_t visit_some(std::size_t from, std::size_t count, Visit&& visit) const {
        std::size_t position = from;
        for (; position < slots_.size() && position < from + count; ++position) {
            if (slots_[position].id != 0) visit(slots_[position].id, slots_[position].value);
        }
        return position < slots_.size() ? position : 0;
    }
    template <class Visit>
    void visit_all(Visit&& visit) const {
        visit_some(0, slots_.size(), visit);
    }

  private:
    struct Slot {
        std::uint64_t id = 0;  // 0 = empty
        Value value{};
    };

    std::size_t mask() const { return slots_.size() - 1; }
    std::size_t home(std::uint64_t id) const { return wire::mix64(id) & mask(); }

    // Where the id is, or the empty slot where it would go.
    std::size_t locate(std::uint64_t id) const {
        std::size_t position = home(id);
        while (slots_[position].id != 0 && slots_[position].id != id) position = (position + 1) & mask();
        return position;
    }

    void grow() {
        std::vector<Slot> old(slots_.empty() ? 16 : slots_.size() * 2);
        old.swap(slots_);
        for (auto& slot : old) {
            if (slot.id != 0) slots_[locate(slot.id)] = std::move(slot);
        }
    }

    std::vector<Slot> slots_;
    std::size_t size_ = 0;
};

}  // namespace mooncake::metadata
