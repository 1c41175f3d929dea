// _core.View: a value that is looked at where it lies, by the buffer protocol, read-only. Its memory stays as
// long as the view is not released; whoever views it by the buffer protocol holds it.
#include "client/view.h"

#include <array>
#include <string>
#include <utility>

#include "bindings/bindings.h"
#include "bindings/view.h"

namespace mooncake::bindings {

namespace nb = nanobind;

namespace {

int get_buffer(PyObject* self, Py_buffer* buffer, int flags) {
    return nb::inst_ptr<ViewHandle>(self)->fill(*buffer, self, flags);
}

void release_buffer(PyObject* self, Py_buffer*) { nb::inst_ptr<ViewHandle>(self)->give_back(); }

}  // namespace

int ViewHandle::fill(Py_buffer& buffer, PyObject* owner, int flags) {
    buffer.obj = nullptr;
    const char* refusal = view_.is_released() ? "the view is released"
                          : !view_.is_of_this_process()
                              ? "the view belongs to the parent of this forked process"
                          : (flags & PyBUF_WRITABLE) != 0 ? "a view is read-only"
                                                          : nullptr;
    if (refusal != nullptr) {
        PyErr_SetString(PyExc_BufferError, refusal);
        return -1;
    }
    if (PyBuffer_FillInfo(&buffer, owner, const_cast<std::uint8_t*>(view_.data()),
                          static_cast<Py_ssize_t>(view_.size()), 1, flags) != 0) {
        return -1;
    }
    ++buffers_;
    return 0;
}

void ViewHandle::release() {
    if (buffers_ > 0) {
        const auto why = std::to_string(buffers_) + " buffers of this view are in use; drop them first";
        PyErr_SetString(PyExc_BufferError, why.c_str());
        throw nb::python_error();
    }
    view_.release();
}

void bind_view(nb::module_& module) {
    std::array<PyType_Slot, 3> slots = {{{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                                         {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                                         {0, nullptr}}};
    nb::class_<ViewHandle>(module, "View", nb::type_slots(slots.data()))
        .def("release", &ViewHandle::release)
        .def_prop_ro("nbytes", [](const ViewHandle& self) { return self.view().size(); })
        .def_prop_ro("is_mapped", [](const ViewHandle& self) { return self.view().is_mapped(); })
        .def_prop_ro("is_released", [](const ViewHandle& self) { return self.view().is_released(); })
        .def("__len__", [](const ViewHandle& self) { return self.view().size(); })
        .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
        .def("__exit__", [](ViewHandle& self, const nb::args&) { self.release(); });
}

// The default for a pointer would leave it to nobody.
nb::object to_view(client::View view) {
    return nb::cast(new ViewHandle(std::move(view)), nb::rv_policy::take_ownership);
}

}  // namespace mooncake::bindings
