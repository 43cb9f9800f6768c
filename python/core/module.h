// SPDX-License-Identifier: Apache-2.0
//
// The parts of rondo._core. rondo/_communicator.py and rondo/torch document them for users.
#pragma once

#include <memory>

#include "python/core/session.h"

namespace rondo::python {

// Makes a session of the communicator, which is closed at the end of the process at the latest.
std::shared_ptr<Session> open(Communicator communicator);
// Joins the other ranks. options: those of rondo.connect() that were given. Raises.
std::shared_ptr<Session> connect(const py::dict& options);

// Adds the operations to _core.Communicator.
void define_operations(py::class_<Session, std::shared_ptr<Session>>& communicator);
// Defines _core.Sampler.
void define_sampler(py::module_& module);

}  // namespace rondo::python
