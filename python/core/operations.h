// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "python/core/session.h"

namespace rondo::python {

// Lists what Python calls rondo._core.Communicator: a Session with its operations.
using Communicator = py::class_<Session, std::shared_ptr<Session>>;

// Adds the operations. rondo/_communicator.py documents them.
void define_operations(Communicator& communicator);

}  // namespace rondo::python
