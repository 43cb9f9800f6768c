# SPDX-License-Identifier: Apache-2.0
"""Models before and after convert_sync_batchnorm(), and back: nothing of them is lost in silence."""

import copy
import io
import pickle
import unittest
from unittest import mock

import torch
import torch.distributed as dist
import torch._dynamo  # noqa: F401  (as in ddp_test.py)
from ranks import RankTest, on_ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils import parametrizations, parametrize

from rondo.torch import SyncBatchNorm, convert_sync_batchnorm, replace_torch_sync_batchnorm, revert_sync_batchnorm


class BatchNormAct(nn.BatchNorm2d):
    """As in model libraries: batch norm and what follows it."""

    def __init__(self, features):
        super().__init__(features)
        self.act = nn.ReLU()
        self.gain = nn.Parameter(torch.full([], 2.0))
        self.register_buffer("shift", torch.ones(1))
        self.note = "kept"

    def forward(self, x):
        return self.act(super().forward(x)) * self.gain + self.shift


class SyncBatchNormAct(SyncBatchNorm):
    def forward(self, x):
        return self.act(super().forward(x)) * self.gain + self.shift


class Renamed(nn.BatchNorm1d):
    pass


class Derived(nn.SyncBatchNorm):
    pass


def small_model():
    torch.manual_seed(2)
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2))


class Convert(RankTest):
    def test_torchs_own(self):
        shared = nn.BatchNorm1d(4)
        model = nn.Sequential(nn.BatchNorm2d(3, eps=0.5, momentum=None), nn.Sequential(shared, nn.ReLU()),
                              shared, nn.BatchNorm1d(2, affine=False),
                              nn.BatchNorm3d(2, track_running_stats=False),
                              nn.BatchNorm1d(2, bias=False), nn.SyncBatchNorm(2, process_group="its own"), nn.InstanceNorm1d(2))  # fmt: skip
        model[0].qconfig = "as it was"
        model[1].eval()
        layers = list(model.modules())
        kinds = [type(layer) for layer in layers]
        kept = dict(model.named_parameters(remove_duplicate=False))
        kept.update(model.named_buffers(remove_duplicate=False))
        keys = list(model.state_dict())
        metadata = copy.deepcopy(model.state_dict()._metadata)
        self.assertIs(convert_sync_batchnorm(model), model)
        self.assertEqual(list(map(id, model.modules())), list(map(id, layers)))
        found = dict(model.named_parameters(remove_duplicate=False))
        found.update(model.named_buffers(remove_duplicate=False))
        self.assertEqual(kept.keys(), found.keys())
        for name, value in kept.items():
            self.assertIs(found[name], value)
        self.assertEqual(list(model.state_dict()), keys)
        self.assertEqual(model.state_dict()._metadata, metadata)
        self.assertEqual({type(model[i]) for i in (0, 2, 3, 4, 5, 6)}, {SyncBatchNorm})
        self.assertEqual((model[0].eps, model[0].momentum, model[0].qconfig), (0.5, None, "as it was"))
        self.assertEqual((model[0].training, model[2].training), (True, False))
        self.assertEqual((model[0].name, model[1][0].name), ("0", "1.0"))
        self.assertNotIsInstance(model[6], nn.SyncBatchNorm)
        again = convert_sync_batchnorm(nn.Sequential(nn.Identity(), model[0]))[1]
        self.assertEqual((type(again), again.name), (SyncBatchNorm, "1"))
        repr(model)
        self.assertEqual((model[2].process_group, model[6].process_group), (None, "its own"))
        convert_sync_batchnorm(model, "another")
        self.assertEqual((model[2].process_group, model[6].process_group), ("another", "another"))
        revert_sync_batchnorm(model)
        self.assertEqual([type(layer) for layer in model.modules()], kinds)
        self.assertEqual(vars(model[6])["process_group"], "another")
        self.assertNotIn("name", vars(model[0]))
        self.assertIs(type(convert_sync_batchnorm(nn.BatchNorm1d(2))), SyncBatchNorm)
        layer = convert_sync_batchnorm(Derived(2, process_group="its own"), class_for={Derived: SyncBatchNorm})
        revert_sync_batchnorm(layer)
        self.assertEqual((type(layer), layer.process_group), (Derived, "its own"))

    @on_ranks(2)
    def test_hooks(self):
        """All kinds of hooks, and those of torch's older weight norm, go on with the layer."""
        model = small_model()
        layer, calls = model[1], []
        layer.register_forward_pre_hook(lambda *_: calls.append("pre"))
        handle = layer.register_forward_hook(lambda module, x, y: calls.append("forward") or y + 1)
        layer.register_full_backward_hook(lambda *_: calls.append("backward"))
        layer.register_load_state_dict_pre_hook(lambda module, *_: calls.append(module))
        layer.register_state_dict_post_hook(lambda *_: calls.append("state"))
        convert_sync_batchnorm(model)
        x = torch.randn(4, 2, 5, 5)
        y = model[:2](x)
        self.assertGreater(y.mean().item(), 0.9)  # of a batch norm plus one
        y.sum().backward()
        model.load_state_dict(model.state_dict())
        self.assertEqual(calls, ["pre", "forward", "backward", "state", layer])
        handle.remove()
        self.assertLess(model[:2](x).mean().item(), 0.1)

    def test_other_classes_are_refused(self):
        def with_own_forward():
            layer = nn.BatchNorm2d(3)
            layer.forward = lambda x: nn.BatchNorm2d.forward(layer, x) + 1
            return layer

        for layer, text in [
            (BatchNormAct(3), "layer b.0 is a .*BatchNormAct, which may do more .*class_for={BatchNormAct: ...}.*"),
            (Renamed(3), "layer b.0 is a .*Renamed,"),
            (parametrizations.weight_norm(nn.BatchNorm2d(3), "bias"), "layer b.0 is a .*ParametrizedBatchNorm2d"),
            (with_own_forward(), r"layer b.0 is a .*BatchNorm2d whose forward\(\) was replaced"),
            (nn.LazyBatchNorm1d(), "layer b.0 has no shape yet"),
        ]:
            model = nn.ModuleDict({"a": nn.BatchNorm2d(3), "b": nn.Sequential(layer)})
            with self.assertRaisesRegex(ValueError, text):
                convert_sync_batchnorm(model)
            self.assertIs(type(model["a"]), nn.BatchNorm2d)  # unchanged
        for wrong in ({BatchNormAct: nn.BatchNorm2d}, {nn.ReLU: SyncBatchNorm}):
            with self.assertRaisesRegex(TypeError, "class_for has (BatchNorm2d for BatchNormAct|SyncBatchNorm for ReLU)"):
                convert_sync_batchnorm(nn.Sequential(), class_for=wrong)

    @on_ranks(2)
    def test_class_for(self):
        x = torch.randn(8, 3, 4, 4, generator=torch.Generator().manual_seed(1))
        model = nn.Sequential(BatchNormAct(3), Renamed(3))
        whole = copy.deepcopy(model[0])
        classes = {BatchNormAct: SyncBatchNormAct, Renamed: Renamed}
        convert_sync_batchnorm(model, class_for=classes)
        self.assertEqual([type(layer) for layer in model], [SyncBatchNormAct, Renamed])
        own = x[4 * self.rank :][:4]
        self.assertTrue(torch.allclose(model[0](own), whole(x)[4 * self.rank :][:4], atol=1e-5))
        self.assertEqual(model[0].note, "kept")
        self.assertEqual(list(model[0].state_dict()), list(whole.state_dict()))
        for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            self.assertTrue(torch.allclose(other[0](own), model[0](own)))
            self.assertIs(type(revert_sync_batchnorm(other)[0]), BatchNormAct)
        model.eval()
        wanted = model[0](own)
        reverted = revert_sync_batchnorm(model)[0]
        self.assertTrue(torch.equal(reverted(own), wanted))

    def test_revert(self):
        model = small_model()
        x = torch.randn(4, 2, 5, 5)
        model(x)
        wanted = model.eval()(x)
        file = io.BytesIO()
        torch.save(convert_sync_batchnorm(model), file)
        file.seek(0)
        loaded = revert_sync_batchnorm(torch.load(file, weights_only=False))
        self.assertIs(type(loaded[1]), nn.BatchNorm2d)
        self.assertNotIn(b"rondo", pickle.dumps(loaded))
        torch.export.export(loaded, (x,))
        self.assertTrue(torch.equal(loaded(x), wanted))
        by_hand = nn.Sequential(SyncBatchNorm(2)).eval()
        wanted = by_hand(x)
        self.assertIs(type(revert_sync_batchnorm(by_hand)[0]), nn.SyncBatchNorm)
        self.assertTrue(torch.equal(by_hand(x), wanted))
        changed = convert_sync_batchnorm(nn.Sequential(nn.BatchNorm2d(2), nn.BatchNorm2d(2)))
        parametrize.register_parametrization(changed[1], "weight", nn.Softplus())
        with self.assertRaisesRegex(ValueError, "layer 1 is a .*ParametrizedSyncBatchNorm, which convert_sync"):
            revert_sync_batchnorm(changed)
        self.assertIs(type(changed[0]), SyncBatchNorm)

    @on_ranks(2)
    def test_attributes_with_names_of_ours(self):
        layer = BatchNormAct(2)
        layer.name, layer.process_group = "act", dist.group.WORLD
        convert_sync_batchnorm(layer, class_for={BatchNormAct: SyncBatchNormAct})
        self.assertIs(layer.process_group, dist.group.WORLD)
        convert_sync_batchnorm(layer, class_for={SyncBatchNormAct: SyncBatchNormAct})
        revert_sync_batchnorm(layer)
        self.assertEqual((layer.name, layer.process_group), ("act", dist.group.WORLD))
        kept = SyncBatchNormAct(2, name="mine")
        convert_sync_batchnorm(nn.Sequential(kept), class_for={SyncBatchNormAct: SyncBatchNormAct})
        self.assertEqual(kept.name, "mine")

    @on_ranks(2)
    def test_traced(self):
        """torch.fx takes the layer whole, as it takes torch's."""
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Unflatten(0, (-1, 1)), nn.Flatten(0, 1))
        model.append(nn.Unflatten(1, (3, 1, 1))).append(BatchNormAct(3))
        convert_sync_batchnorm(model, class_for={BatchNormAct: SyncBatchNormAct})
        x = torch.randn(4, 2)
        for training in (True, False):
            traced = torch.fx.symbolic_trace(copy.deepcopy(model).train(training))
            self.assertEqual([node.target for node in traced.graph.nodes if node.op == "call_module"], list("012345"))
            wanted = copy.deepcopy(model).train(training)
            self.assertTrue(torch.equal(traced(x), wanted(x)))
            self.assertTrue(torch.equal(traced.get_submodule("1").running_mean, wanted[1].running_mean))

    @on_ranks(2)
    def test_frameworks_that_name_torchs_layer(self):
        def detectron(features):
            return nn.Sequential(nn.Linear(2, features), nn.SyncBatchNorm(features))

        def lightning(features):
            return nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.Linear(2, features), nn.BatchNorm1d(features)))

        for make in (detectron, lightning):
            replace_torch_sync_batchnorm()
            replace_torch_sync_batchnorm()
            self.assertIs(type(Derived(2)), Derived)
            self.assertIs(type(nn.SyncBatchNorm(2, affine=False)), SyncBatchNorm)
            with mock.patch("rondo.torch.convert._on_gpu", lambda module: True):
                self.assertIs(type(make(3)[1]), nn.SyncBatchNorm)
            torch.manual_seed(0)
            model = make(3)
            replace_torch_sync_batchnorm(False)
            self.assertIs(type(model[1]), SyncBatchNorm)
            self.assertIs(type(make(3)[1]), nn.SyncBatchNorm)
            x = torch.randn(8, 2, generator=torch.Generator().manual_seed(3))
            wanted = nn.Sequential(copy.deepcopy(model[0]), nn.BatchNorm1d(3))(x)
            y = DDP(model)(x[4 * self.rank :][:4])
            self.assertTrue(torch.allclose(y, wanted[4 * self.rank :][:4], atol=1e-5))
        with self.assertRaisesRegex(ValueError, "SyncBatchNorm layers only work with GPU modules"):
            DDP(lightning(3))
        made = []
        init = nn.SyncBatchNorm.__init__

        def noted(layer, *args, **options):
            made.append(layer)
            init(layer, *args, **options)

        with mock.patch.object(nn.SyncBatchNorm, "__init__", noted):
            replace_torch_sync_batchnorm()
            self.assertIs(type(detectron(3)[1]), SyncBatchNorm)
            replace_torch_sync_batchnorm(False)
            self.assertIs(type(detectron(3)[1]), nn.SyncBatchNorm)
        self.assertEqual(len(made), 2)


if __name__ == "__main__":
    unittest.main()
