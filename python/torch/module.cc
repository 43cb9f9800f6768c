// SPDX-License-Identifier: Apache-2.0
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "python/torch/backend.h"
#include "python/torch/batch_norm.h"

PYBIND11_MODULE(_c, module) {
  using rondo::python::Backend;
  module.doc() = "Rondo's backend for torch.distributed: use it by its name, \"rondo\".";
  rondo::python::watch_forks();
  // new_group calls it on ranks outside the new group where the default group has a device.
  py::class_<Backend, c10::intrusive_ptr<Backend>, c10d::Backend>(module, "Backend")
      .def(
          "perform_nocolor_split", [](Backend&, const py::object&) {}, py::arg("device"));
  module.def("create", &Backend::create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("group"), py::arg("global_ranks"),
             py::call_guard<py::gil_scoped_release>());
  rondo::python::bind_batch_norm(module);
  module.def("shutdown_all", &rondo::python::GroupSession::close_all,
             py::call_guard<py::gil_scoped_release>());
}
