// SPDX-License-Identifier: Apache-2.0
//
// The C API takes one count for both buffers of an operation, so what they hold is checked here.
#include "python/core/operations.h"

#include <pybind11/stl.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "python/core/call.h"
#include "python/core/element.h"
#include "python/core/view.h"
#include "python/core/work.h"

namespace rondo::python {

namespace {

using Shared = const std::shared_ptr<Session>&;
using Counts = std::vector<std::size_t>;

Lane lane_of(const Call& call) {
  return call.options.urgent != 0 ? Lane::urgent : Lane::bulk;
}

std::size_t size_of(const Session& session) {
  if (session.is_closed()) refuse_closed();
  return static_cast<std::size_t>(rondo_size(session.get()));
}

std::size_t rank_of(const Session& session) {
  if (session.is_closed()) refuse_closed();
  return static_cast<std::size_t>(rondo_rank(session.get()));
}

// One operation while its arguments are read.
struct Reading {
  const char* operation;
  const Call& call;

  View in(py::handle object, const char* name = "data") const {
    return {object, operation, name, Access::read, call.dtype};
  }
  View out(py::handle object, const char* name = "out") const {
    return {object, operation, name, Access::write, call.dtype};
  }
  // `b` has `times` as many elements as `a`, of the same type.
  void require_times(const View& a, const char* a_name, const View& b, const char* b_name,
                     std::size_t times) const {
    require_alike(a, a_name, b, b_name);
    if (b.items() / times != a.items() || b.items() % times != 0)
      refuse(std::string(operation) + ": " + b_name + " has " + std::to_string(b.items()) +
             " elements and " + a_name + " has " + std::to_string(a.items()) + ": " +
             (times == 1 ? "give the same number"
                         : std::string(b_name) + " needs " + std::to_string(times) +
                               " times as many, a block for each rank"));
  }
  void require_alike(const View& a, const char* a_name, const View& b, const char* b_name) const {
    if (!(a.element() == b.element()))
      refuse(std::string(operation) + ": " + a_name + " and " + b_name +
             " have elements of different types: give the same type, or dtype=");
  }
  void require_items(const View& view, const char* name, std::size_t items) const {
    if (view.items() != items)
      refuse(std::string(operation) + ": " + name + " has " + std::to_string(view.items()) +
             " elements, but the counts say " + std::to_string(items));
  }
  rondo_op reduction(py::handle op, const View& view) const {
    const rondo_op value = op_from(op);
    if (const std::string_view why = why_not_reduced(view.element(), value); !why.empty())
      refuse(std::string(operation) + ": " + std::string(why));
    return value;
  }
  // One count for each rank, in elements of Python.
  Counts counts(py::handle object, const char* name, std::size_t size) const {
    Counts all;
    try {
      all = py::cast<Counts>(py::list(py::reinterpret_borrow<py::object>(object)));
    } catch (const py::cast_error&) {
      refuse(std::string(operation) + ": " + name + " must be integers, 0 or more");
    }
    if (all.size() != size)
      refuse(std::string(operation) + ": " + name + " has " + std::to_string(all.size()) +
             " counts: give one for each of the " + std::to_string(size) + " ranks");
    return all;
  }
};

std::size_t sum_of(const Counts& counts) {
  std::size_t sum = 0;
  for (const std::size_t count : counts)
    if (__builtin_add_overflow(sum, count, &sum))
      refuse("the counts add up to more elements than memory can hold");
  return sum;
}

// Holds the same counts in elements of Rondo. Their sum fits in memory.
Counts in_parts(Counts counts, const Element& element) {
  for (std::size_t& count : counts) count *= element.parts;
  return counts;
}

// The buffers as the C API takes them.
struct Moved {
  void* from;
  void* to;
  std::size_t count;
  rondo_dtype type;
};

Moved moved(const Borrowed& buffers, std::size_t count) {
  const View& any = buffers.first ? buffers.first : buffers.second;
  return {buffers.first.data(), buffers.second.data(), count, any.element().type};
}

Moved moved(const Borrowed& buffers, bool in_place, std::size_t count) {
  Moved all = moved(buffers, count);
  if (in_place) all.to = all.from;
  return all;
}

py::object all_reduce(Shared session, py::handle data, py::handle out, py::handle op,
                      const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"all_reduce", call};
  const bool in_place = out.is_none();
  Borrowed both{in_place ? read.out(data, "data") : read.in(data), {}, {}};
  if (!in_place) {
    both.second = read.out(out);
    read.require_times(both.first, "data", both.second, "out", 1);
  }
  const rondo_op reduction = read.reduction(op, both.first);
  const Moved m = moved(both, in_place, both.first.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_all_reduce(c, m.from, m.to, m.count, m.type, reduction, o, request);
  });
}

py::object reduce(Shared session, py::handle data, py::handle out, int root, py::handle op,
                  const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"reduce", call};
  const bool is_root = static_cast<std::size_t>(root) == rank_of(*session);
  const bool in_place = is_root && out.is_none();
  Borrowed both{in_place ? read.out(data, "data") : read.in(data), {}, {}};
  if (is_root && !in_place) {
    both.second = read.out(out);
    read.require_times(both.first, "data", both.second, "out", 1);
  }
  const rondo_op reduction = read.reduction(op, both.first);
  const Moved m = moved(both, in_place, both.first.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_reduce(c, m.from, m.to, m.count, m.type, reduction, root, o, request);
  });
}

py::object broadcast(Shared session, py::handle data, int root, const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"broadcast", call};
  const bool is_root = static_cast<std::size_t>(root) == rank_of(*session);
  Borrowed one{is_root ? read.in(data) : read.out(data, "data"), {}, {}};
  const Moved m = moved(one, one.first.count());
  return run(session, lane_of(call), std::move(one), call, [=](auto* c, auto* o, auto** request) {
    return rondo_broadcast(c, m.from, m.from, m.count, m.type, root, o, request);
  });
}

py::object all_gather(Shared session, py::handle data, py::handle out, const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"all_gather", call};
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_times(both.first, "data", both.second, "out", size_of(*session));
  const Moved m = moved(both, both.first.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_all_gather(c, m.from, m.to, m.count, m.type, o, request);
  });
}

py::object reduce_scatter(Shared session, py::handle data, py::handle out, py::handle op,
                          const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"reduce_scatter", call};
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_times(both.second, "out", both.first, "data", size_of(*session));
  const rondo_op reduction = read.reduction(op, both.first);
  const Moved m = moved(both, both.second.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_reduce_scatter(c, m.from, m.to, m.count, m.type, reduction, o, request);
  });
}

py::object gather(Shared session, py::handle data, py::handle out, int root,
                  const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"gather", call};
  Borrowed both{read.in(data), {}, {}};
  if (static_cast<std::size_t>(root) == rank_of(*session)) {
    both.second = read.out(out);
    read.require_times(both.first, "data", both.second, "out", size_of(*session));
  }
  const Moved m = moved(both, both.first.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_gather(c, m.from, m.to, m.count, m.type, root, o, request);
  });
}

py::object scatter(Shared session, py::handle data, py::handle out, int root,
                   const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"scatter", call};
  Borrowed both{{}, read.out(out), {}};
  if (static_cast<std::size_t>(root) == rank_of(*session)) {
    both.first = read.in(data);
    read.require_times(both.second, "out", both.first, "data", size_of(*session));
  }
  const Moved m = moved(both, both.second.count());
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_scatter(c, m.from, m.to, m.count, m.type, root, o, request);
  });
}

py::object all_to_all(Shared session, py::handle data, py::handle out, const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"all_to_all", call};
  const std::size_t size = size_of(*session);
  const bool in_place = out.is_none();
  Borrowed both{in_place ? read.out(data, "data") : read.in(data), {}, {}};
  if (!in_place) {
    both.second = read.out(out);
    read.require_times(both.first, "data", both.second, "out", 1);
  }
  if (both.first.items() % size != 0)
    refuse("all_to_all: data has " + std::to_string(both.first.items()) +
           " elements: give a multiple of the number of ranks, which is " + std::to_string(size));
  const Moved m = moved(both, in_place, both.first.count() / size);
  return run(session, lane_of(call), std::move(both), call, [=](auto* c, auto* o, auto** request) {
    return rondo_all_to_all(c, m.from, m.to, m.count, m.type, o, request);
  });
}

py::object all_gather_v(Shared session, py::handle data, py::handle out, py::handle counts,
                        const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"all_gather_v", call};
  const Counts items = read.counts(counts, "counts", size_of(*session));
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_alike(both.first, "data", both.second, "out");
  read.require_items(both.first, "data", items[rank_of(*session)]);
  read.require_items(both.second, "out", sum_of(items));
  const Counts parts = in_parts(items, both.first.element());
  const Moved m = moved(both, 0);
  return run(session, lane_of(call), std::move(both), call, [&](auto* c, auto* o, auto** request) {
    return rondo_all_gather_v(c, m.from, m.to, parts.data(), m.type, o, request);
  });
}

py::object reduce_scatter_v(Shared session, py::handle data, py::handle out, py::handle counts,
                            py::handle op, const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"reduce_scatter_v", call};
  const Counts items = read.counts(counts, "counts", size_of(*session));
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_alike(both.first, "data", both.second, "out");
  read.require_items(both.first, "data", sum_of(items));
  read.require_items(both.second, "out", items[rank_of(*session)]);
  const rondo_op reduction = read.reduction(op, both.first);
  const Counts parts = in_parts(items, both.first.element());
  const Moved m = moved(both, 0);
  return run(session, lane_of(call), std::move(both), call, [&](auto* c, auto* o, auto** request) {
    return rondo_reduce_scatter_v(c, m.from, m.to, parts.data(), m.type, reduction, o, request);
  });
}

py::object all_to_all_v(Shared session, py::handle data, py::handle send_counts, py::handle out,
                        py::handle receive_counts, const py::dict& keywords) {
  const Call call = call_from(keywords);
  const Reading read{"all_to_all_v", call};
  const Counts sends = read.counts(send_counts, "send_counts", size_of(*session)),
               receives = read.counts(receive_counts, "receive_counts", size_of(*session));
  Borrowed both{read.in(data), read.out(out), {}};
  read.require_alike(both.first, "data", both.second, "out");
  read.require_items(both.first, "data", sum_of(sends));
  read.require_items(both.second, "out", sum_of(receives));
  const Counts send_parts = in_parts(sends, both.first.element()),
               receive_parts = in_parts(receives, both.first.element());
  const Moved m = moved(both, 0);
  return run(session, Lane::messages, std::move(both), call, [&](auto* c, auto* o, auto** request) {
    return rondo_all_to_all_v(c, m.from, send_parts.data(), m.to, receive_parts.data(), m.type, o,
                              request);
  });
}

py::object barrier(Shared session, const py::dict& keywords) {
  const Call call = call_from(keywords);
  return run(session, lane_of(call), {}, call,
             [](auto* c, auto* o, auto** request) { return rondo_barrier(c, o, request); });
}

std::uint32_t tag_from(const char* operation, py::handle tag) {
  const unsigned long value = PyLong_Check(tag.ptr()) ? PyLong_AsUnsignedLong(tag.ptr()) : ~0UL;
  if (PyErr_Occurred() != nullptr) PyErr_Clear();
  if (value > std::numeric_limits<std::uint32_t>::max())
    refuse(py::str("{}: tag is {!r}: give an integer from 0 to 4294967295").format(operation, tag));
  return static_cast<std::uint32_t>(value);
}

py::object send(Shared session, py::handle data, int peer, py::handle tag,
                const py::dict& keywords) {
  const Call call = call_from(keywords);
  const std::uint32_t number = tag_from("send", tag);
  Borrowed one{Reading{"send", call}.in(data), {}, {}};
  const Moved m = moved(one, one.first.count());
  return run(session, Lane::messages, std::move(one), call, [=](auto* c, auto* o, auto** request) {
    return rondo_send(c, m.from, m.count, m.type, peer, number, o, request);
  });
}

py::object receive(Shared session, py::handle out, int peer, py::handle tag,
                   const py::dict& keywords) {
  const Call call = call_from(keywords);
  const std::uint32_t number = tag_from("receive", tag);
  Borrowed one{Reading{"receive", call}.out(out), {}, {}};
  const Moved m = moved(one, one.first.count());
  return run(session, Lane::messages, std::move(one), call, [=](auto* c, auto* o, auto** request) {
    return rondo_receive(c, m.from, m.count, m.type, peer, number, o, request);
  });
}

// Always makes a Work of its own, which knows the source.
py::object receive_any(Shared session, py::handle out, py::handle tag, const py::dict& keywords) {
  Call call = call_from(keywords);
  const bool wait = std::exchange(call.wait, false);
  const std::uint32_t number = tag_from("receive_any", tag);
  Borrowed one{Reading{"receive_any", call}.out(out), {}, {}};
  const Moved m = moved(one, one.first.count());
  py::object work =
      run(session, Lane::messages, std::move(one), call, [=](auto* c, auto* o, auto** request) {
        return rondo_receive_any(c, m.from, m.count, m.type, number, o, request);
      });
  if (wait) py::cast<Work&>(work).wait({});
  return work;
}

// transfers: tuples (is a receive, buffer, peer, tag, dtype or None).
py::object batch(Shared session, const py::list& transfers, const py::dict& keywords) {
  const Call call = call_from(keywords);
  Borrowed buffers;
  std::vector<rondo_transfer> all;
  for (const py::handle each : transfers) {
    const auto fields = py::cast<py::tuple>(each);
    const bool receives = py::cast<bool>(fields[0]);
    Call own = call;
    if (!fields[4].is_none()) own.dtype = dtype_from(fields[4]);
    const Reading read{"batch", own};
    View& view = buffers.more.emplace_back(receives ? read.out(fields[1]) : read.in(fields[1]));
    all.push_back({receives ? 1 : 0, view.data(), view.count(), view.element().type,
                   py::cast<int>(fields[2]), tag_from("batch", fields[3])});
  }
  return run(session, Lane::messages, std::move(buffers), call,
             [&](auto* c, auto* o, auto** request) {
               return rondo_batch(c, all.data(), all.size(), o, request);
             });
}

}  // namespace

void define_operations(Communicator& communicator) {
  communicator.def("all_reduce", &all_reduce)
      .def("reduce", &reduce)
      .def("broadcast", &broadcast)
      .def("all_gather", &all_gather)
      .def("reduce_scatter", &reduce_scatter)
      .def("gather", &gather)
      .def("scatter", &scatter)
      .def("all_to_all", &all_to_all)
      .def("all_gather_v", &all_gather_v)
      .def("reduce_scatter_v", &reduce_scatter_v)
      .def("all_to_all_v", &all_to_all_v)
      .def("barrier", &barrier)
      .def("send", &send)
      .def("receive", &receive)
      .def("receive_any", &receive_any)
      .def("batch", &batch);
}

}  // namespace rondo::python
