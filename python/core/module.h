// SPDX-License-Identifier: Apache-2.0
//
// What rondo._core has. rondo/_communicator.py and rondo/torch document it for users.
#pragma once

#include <memory>

#include "python/core/session.h"

namespace rondo::python {

// Has a member of a group closed at the end of the process.
std::shared_ptr<Session> open(Communicator communicator);
// Joins the other ranks. options: those of rondo.connect() that were given. Raises.
std::shared_ptr<Session> connect(const py::dict& options);

// Adds the operations to _core.Communicator.
void define_operations(py::class_<Session, std::shared_ptr<Session>>& communicator);
// Defines _core.Sampler.
void define_sampler(py::module_& module);

}  // namespace rondo::python
