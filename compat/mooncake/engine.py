"""`TransferEngine` and its kin: reads and writes of other engines' registered memory."""

from mooncake_client.dropin.absent import ReceivedData, ReceivedTensor, RpcInterface, SharedSegment
from mooncake_client.dropin.absent import create_rpc as create_rpc_client
from mooncake_client.dropin.absent import create_rpc as create_rpc_server
from mooncake_client.dropin.transfer_engine import TransferEngine, TransferNotify, TransferOpcode
from mooncake_client.dropin.transfer_start import InnerTransferEngine

CoroRPCInterface = RpcInterface
Read = TransferOpcode.Read
Write = TransferOpcode.Write

SUPPORT_CUDA = False
SUPPORT_EFA = False
SUPPORT_HIP = False
SUPPORT_INTRA_NVLINK = False
SUPPORT_MNNVL = False
SUPPORT_MUSA = False

__all__ = [
    "SUPPORT_CUDA",
    "SUPPORT_EFA",
    "SUPPORT_HIP",
    "SUPPORT_INTRA_NVLINK",
    "SUPPORT_MNNVL",
    "SUPPORT_MUSA",
    "CoroRPCInterface",
    "InnerTransferEngine",
    "Read",
    "ReceivedData",
    "ReceivedTensor",
    "RpcInterface",
    "SharedSegment",
    "TransferEngine",
    "TransferNotify",
    "TransferOpcode",
    "Write",
    "create_rpc_client",
    "create_rpc_server",
]
