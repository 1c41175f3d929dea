#include "metadata/puts.h"

#include <cassert>

namespace mooncake::metadata {

PutIndex Puts::add(Put put, Session& session) {
    assert(newest_ == 0 || slots_[newest_].put_id < put.put_id);
    if (free_.empty()) {
        free_.push_back(static_cast<PutIndex>(slots_.size()));
        slots_.emplace_back();
    }
    const PutIndex index = free_.back();
    free_.pop_back();
    put.older = newest_;
    put.newer = 0;
    put.session_previous = 0;
    put.session_next = session.put_head;
    if (newest_ != 0) slots_[newest_].newer = index;
    if (oldest_ == 0) oldest_ = index;
    newest_ = index;
    if (session.put_head != 0) slots_[session.put_head].session_previous = index;
    session.put_head = index;
    by_id_.insert(put.put_id, index);
    by_record_.insert(put.record, index);
    slots_[index] = put;
    return index;
}

void Puts::remove(PutIndex index, Session& session) {
    Put& put = slots_[index];
    assert(put.put_id != 0 && put.session == session.id);
    (put.older != 0 ? slots_[put.older].newer : oldest_) = put.newer;
    (put.newer != 0 ? slots_[put.newer].older : newest_) = put.older;
    (put.session_previous != 0 ? slots_[put.session_previous].session_next : session.put_head) =
        put.session_next;
    if (put.session_next != 0) slots_[put.session_next].session_previous = put.session_previous;
    by_id_.erase(put.put_id);
    by_record_.erase(put.record);
    put = Put{};
    free_.push_back(index);
}

}  // namespace mooncake::metadata
