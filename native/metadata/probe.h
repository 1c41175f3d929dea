// Walking a batch of keys through the index so that its cache misses overlap.
#pragma once

#include <algorithm>
#include <array>

#include "metadata/machine.h"

namespace mooncake::metadata {

// In blocks: the slots of all keys are touched first, then their records, then each is found and answered.
// Measured (spec of the first prototypes): three times as fast as one key after the other. `answer` may
// change the table.
template <class Answer>
void Machine::probe_keys(State& command, std::uint32_t tenant, std::size_t keys_max, Answer&& answer) {
    struct Probe {
        std::string_view key;
        std::uint64_t hash;
    };
    constexpr std::size_t kBlock = 64;
    std::array<Probe, kBlock> probes;
    wire::KeyList::Cursor& cursor = *command.cursor;
    while (keys_max > 0 && !cursor.done()) {
        std::size_t count = 0;
        for (; count < std::min(kBlock, keys_max) && !cursor.done(); ++count) {
            const std::string_view key = cursor.next();
            probes[count] = {key, table_.hash(tenant, key)};
            table_.prefetch_slot(probes[count].hash);
        }
        keys_max -= count;
        for (std::size_t i = 0; i < count; ++i) {
            table_.prefetch_record(probes[i].hash, probes[i].key.size());
        }
        for (std::size_t i = 0; i < count; ++i) {
            const auto& [key, hash] = probes[i];
            const Ref ref = wire::is_valid_key(key) ? table_.find(hash, tenant, key) : 0;
            if (!answer(key, ref)) return;
        }
    }
}

}  // namespace mooncake::metadata
