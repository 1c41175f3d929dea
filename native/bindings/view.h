// client::View as Python has it.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <utility>

#include "client/view.h"

namespace mooncake::bindings {

class ViewHandle {
  public:
    explicit ViewHandle(client::View view) : view_(std::move(view)) {}

    const client::View& view() const { return view_; }
    // As a type's bf_getbuffer; with the GIL, as all that follows.
    int fill(Py_buffer& buffer, PyObject* owner, int flags);
    void give_back() { --buffers_; }
    void release();  // raises BufferError while buffers of it are in use

  private:
    client::View view_;
    std::size_t buffers_ = 0;
};

nanobind::object to_view(client::View view);

}  // namespace mooncake::bindings
