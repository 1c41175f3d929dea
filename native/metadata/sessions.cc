#include "metadata/sessions.h"

#include <algorithm>
#include <cassert>
#include <functional>

namespace mooncake::metadata {

std::uint32_t Tenants::acquire(std::string_view name) {
    const auto found = by_name_.find(std::string(name));
    if (found != by_name_.end()) {
        ++slots_[found->second].uses;
        return found->second;
    }
    auto tenant = static_cast<std::uint32_t>(wire::mix64(std::hash<std::string_view>{}(name)) >> 32);
    while (slots_.contains(tenant)) ++tenant;
    slots_[tenant] = {std::string(name), 1};
    by_name_.emplace(name, tenant);
    return tenant;
}

void Tenants::release(std::uint32_t tenant) {
    Slot& slot = slots_.at(tenant);
    assert(slot.uses > 0);
    if (--slot.uses > 0) return;
    by_name_.erase(slot.name);
    slots_.erase(tenant);
}

std::vector<std::uint32_t> Tenants::some(std::size_t count_max) const {
    std::vector<std::uint32_t> tenants;
    for (const auto& [name, tenant] : by_name_) {
        if (tenants.size() == count_max) break;
        tenants.push_back(tenant);
    }
    return tenants;
}

const ReplayWindow::Answer* ReplayWindow::find(std::uint64_t sequence) const {
    const auto found = answers_.find(sequence);
    return found == answers_.end() ? nullptr : &found->second;
}

void ReplayWindow::finish(std::uint64_t sequence, Answer answer, std::size_t count_max,
                          std::size_t bytes_max) {
    answer.done = true;
    bytes_ += cost(answer);
    answers_[sequence] = std::move(answer);
    // What is still on its way stays: forgetting it would let it happen twice.
    for (auto lowest = answers_.begin();
         lowest != answers_.end() && (answers_.size() > count_max || bytes_ > bytes_max);) {
        if (!lowest->second.done || lowest->first == sequence) {
            ++lowest;
            continue;
        }
        bytes_ -= cost(lowest->second);
        forgotten_ = std::max(forgotten_, lowest->first);
        lowest = answers_.erase(lowest);
    }
}

std::string Sessions::process_key(const wire::Uuid& process, std::string_view tenant) {
    std::string key(reinterpret_cast<const char*>(process.data()), process.size());
    return key.append(tenant);
}

Session* Sessions::find(wire::SessionId id) {
    const auto found = by_id_.find(id);
    return found == by_id_.end() || found->second->ending ? nullptr : found->second.get();
}

Session* Sessions::find_ending(wire::SessionId id) {
    const auto found = by_id_.find(id);
    return found == by_id_.end() || !found->second->ending ? nullptr : found->second.get();
}

Session* Sessions::find_process(const wire::Uuid& process, std::string_view tenant) {
    const auto found = by_process_.find(process_key(process, tenant));
    return found == by_process_.end() ? nullptr : find(found->second);
}

Session& Sessions::open(wire::SessionId id, const wire::Uuid& process, std::string_view name,
                        std::string_view host_id, std::string_view tenant) {
    auto session = std::make_unique<Session>();
    session->id = id;
    session->process = process;
    session->name = name;
    session->host_id = host_id;
    session->tenant = tenants_.acquire(tenant);
    by_process_[process_key(process, tenant)] = id;
    return *(by_id_[id] = std::move(session));
}

void Sessions::begin_end(Session& session) {
    assert(!session.ending);
    session.ending = true;
    by_process_.erase(process_key(session.process, tenants_.name(session.tenant)));
    ending_.push_back(session.id);
}

void Sessions::erase(wire::SessionId id) {
    const auto found = by_id_.find(id);
    assert(found != by_id_.end() && found->second->ending);
    tenants_.release(found->second->tenant);
    ending_.erase(std::find(ending_.begin(), ending_.end(), id));
    by_id_.erase(found);
}

}  // namespace mooncake::metadata
