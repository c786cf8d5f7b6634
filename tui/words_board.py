"""Words of screen 6, Board."""

EN = {
    "board.empty": "No board is connected: temperature, power and watchdog are not measured here.",
    "board.says": "The box says of the board: {}.",
    "board.leads": "Enter opens Set-up, which lists what the box has and what it lacks.",
    "board.sensor": "SENSOR",
    "board.reading": "READING",
    "board.band": "BAND",
    "board.past": "last 60 s",
    "board.temperature": "temperature",
    "board.power": "power",
    "board.energy": "energy",
    "board.watchdog": "watchdog left",
    "board.board": "board    {}",
    "board.state_none": "none",
    "board.state_ok": "ok",
    "board.state_lost": "LOST",
    "board.hint_setup": "set-up",
}

ZH = {
    "board.empty": "未连接控制板：此处不测量温度、功率和看门狗。",
    "board.says": "设备对控制板的说明：{}。",
    "board.leads": "按 Enter 打开设置，其中列出设备已有和所缺的部分。",
    "board.sensor": "传感器",
    "board.reading": "读数",
    "board.band": "目标",
    "board.past": "最近 60 s",
    "board.temperature": "温度",
    "board.power": "功率",
    "board.energy": "能耗",
    "board.watchdog": "看门狗剩余",
    "board.board": "控制板   {}",
    "board.state_none": "无",
    "board.state_ok": "正常",
    "board.state_lost": "失联",
    "board.hint_setup": "设置",
}
