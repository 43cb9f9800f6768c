// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "contexts.h"
#include "work.h"

namespace fake {

using rondo::device::EventHandle;
using rondo::device::StreamHandle;

// Thread-safe, quiet. A query sees the event word of the most recent record, and nothing else.
Status create_event(EventHandle* event, ContextHandle context);
Status destroy_event(EventHandle event);
Status record_event(EventHandle event, StreamHandle stream);
Status query_event(EventHandle event);
Status wait_for_event(StreamHandle stream, EventHandle event);

}  // namespace fake
